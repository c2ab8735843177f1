"""Would an API server take our files, as far as that can be told without one?

Reads files named on the command line; prints what is wrong, one line each. Two descriptions are asked. The models of JobSet, Kubeflow Trainer
and Kubernetes (kubeflow-trainer-api, made of their OpenAPI description) must know every field, with the types it has there: they drop fields
they do not know, so what they understood is compared with what was written. And the Jobs and Pods that the controllers make of our templates must
satisfy Kubernetes' own schema in its strict form (kubernetes-validate: required fields, no field too many), in the oldest and the newest release
that it has. Mounts must name a volume of their pod, and names must be unique, which no schema says.
"""
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models

WHOLE = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}
RELEASES = ["1.25", "1.37"]


def differences(written, understood, place):
    if isinstance(written, dict) and isinstance(understood, dict):
        for key, value in written.items():
            if key in understood:
                yield from differences(value, understood[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}: no such field"
    elif isinstance(written, list) and isinstance(understood, list) and len(written) == len(understood):
        for number, pair in enumerate(zip(written, understood)):
            yield from differences(*pair, f"{place}.{number}")
    elif written != understood:
        yield f"{place}: {written!r} became {understood!r}"


def check(model, document, place):
    try:
        understood = model.from_dict(document).to_dict()
    except ValueError as error:
        return [f"{place}: {error}"]
    return list(differences(document, understood, place))


def jobs(document):
    """The Jobs that JobSet's controller makes."""
    for part in document["spec"]["replicatedJobs"]:
        template = part["template"]
        name = f"{document['metadata']['name']}-{part['name']}-0"
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **template.get("metadata", {})}, "spec": template["spec"]}


def pod(template, name):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **template.get("metadata", {})}, "spec": template["spec"]}


def made(document):
    """What the API server gets besides the document: of a JobSet its Jobs, of others their pods."""
    kind, spec = document["kind"], document["spec"]
    if kind == "JobSet":
        yield from jobs(document)
    elif kind == "TrainJob":
        for patch in spec["runtimePatches"]:
            inner = {"metadata": document["metadata"], "spec": patch["trainingRuntimeSpec"]["template"]["spec"]}
            for job in jobs(inner):
                # A patch has no restart policy of its own: the runtime's Job has it.
                yield pod(job["spec"]["template"], job["metadata"]["name"])
    else:
        for role, replica in spec["tfReplicaSpecs"].items():
            yield pod(replica["template"], f"{document['metadata']['name']}-{role.lower()}-0")


def strict(document, place):
    for release in RELEASES:
        try:
            kubernetes_validate.validate(document, release, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            yield f"{place} in {release}: {path}: {error.message}"


def names(document, place):
    spec = document["spec"]["template"]["spec"] if document["kind"] == "Job" else document["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    for container in spec["containers"]:
        lists = {
            "volumes": volumes,
            "env": [entry["name"] for entry in container.get("env", [])],
            "mounts": [mount["mountPath"] for mount in container.get("volumeMounts", [])],
        }
        for what, found in lists.items():
            if len(set(found)) < len(found):
                yield f"{place}: {what} has a name twice: {found}"
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{place}: no volume {mount['name']}"


def objections(document):
    kind = document["kind"]
    if kind in WHOLE:
        yield from check(WHOLE[kind], document, kind)
    else:  # the Training Operator's models are not published apart from its client; the pods are Kubernetes' own
        for role, spec in document["spec"]["tfReplicaSpecs"].items():
            yield from check(models.IoK8sApiCoreV1PodTemplateSpec, spec["template"], f"{kind} {role}")
    for child in made(document):
        place = f"{child['kind']} {child['metadata']['name']}"
        yield from strict(child, place)
        yield from names(child, place)


def main():
    for name in sys.argv[1:]:
        with open(name) as file:
            document = yaml.safe_load(file)
        for line in objections(document):
            print(f"{name}: {line}")


if __name__ == "__main__":
    main()
