"""Do Kubernetes' own models know every field of our files, with the types they have there?

Reads files named on the command line; prints what is wrong, one line each. The models come from the OpenAPI description of JobSet,
Kubeflow Trainer and Kubernetes itself (kubeflow-trainer-api). They drop fields they do not know, so what they understood is
compared with what was written.
"""
import sys

import yaml
from kubeflow_trainer_api import models

WHOLE = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}


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


def main():
    for name in sys.argv[1:]:
        with open(name) as file:
            document = yaml.safe_load(file)
        kind = document["kind"]
        if kind in WHOLE:
            found = check(WHOLE[kind], document, kind)
        else:  # the Training Operator's models are not published apart from its client; the pods are Kubernetes' own
            replicas = document["spec"]["tfReplicaSpecs"]
            found = [
                line
                for role, spec in replicas.items()
                for line in check(models.IoK8sApiCoreV1PodTemplateSpec, spec["template"], f"{kind} {role}")
            ]
        for line in found:
            print(f"{name}: {line}")


main()
