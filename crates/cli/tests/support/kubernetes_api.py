"""As much of a Kubernetes API server as the real `kubectl` needs for JobSets: discovery, create, get, list, delete, pods and their logs.

`kubernetes_api.py FOLDER` listens on a port of loopback and writes it to FOLDER/port. A JobSet is refused if its models or strict schemas object to it,
or if one of that name is there; FOLDER/status holds what its `status` is, FOLDER/log what every pod has printed, and FOLDER/forbidden the user who may do nothing.
There are no nodes: each JobSet has the pods that its Jobs would have.
"""
import http.server
import json
import pathlib
import sys
import urllib.parse

from kubernetes_schema import jobs, objections

FOLDER = pathlib.Path(sys.argv[1])
GROUP, VERSION = "jobset.x-k8s.io", "v1alpha2"
SETS = f"/apis/{GROUP}/{VERSION}/namespaces/default/jobsets"
PODS = "/api/v1/namespaces/default/pods"
VERBS = ["create", "delete", "get", "list", "watch"]
known = {}


def failure(code, reason, message):
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code}


def resources(version, name, kind):
    entry = {"name": name, "singularName": name[:-1], "namespaced": True, "kind": kind, "verbs": VERBS}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [entry]}


def discovery(path):
    group = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": GROUP, "versions": [group], "preferredVersion": group}]},
        "/api/v1": resources("v1", "pods", "Pod"),
        f"/apis/{GROUP}/{VERSION}": resources(f"{GROUP}/{VERSION}", "jobsets", "JobSet"),
    }.get(path)


def with_status(document):
    status = FOLDER / "status"
    return {**document, "status": json.loads(status.read_text()) if status.exists() else {}}


def pods():
    for document in known.values():
        for job in jobs(document):
            for index in range(job["spec"]["completions"]):
                name = f"{job['metadata']['name']}-{index}-x7k2p"
                labels = {"jobset.sigs.k8s.io/jobset-name": document["metadata"]["name"], "batch.kubernetes.io/job-completion-index": str(index)}
                spec = job["spec"]["template"]["spec"]
                metadata = {"name": name, "namespace": "default", "labels": labels}
                yield {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def selected(documents, query):
    """Those whose labels and name are the ones asked for."""
    labels = [pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair]
    field = query.get("fieldSelector", "").removeprefix("metadata.name=")
    return [
        document
        for document in documents
        if all(document["metadata"].get("labels", {}).get(name) == value for name, value in labels)
        and field in ("", document["metadata"]["name"])
    ]


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, code, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def split(self):
        url = urllib.parse.urlsplit(self.path)
        return url.path, dict(urllib.parse.parse_qsl(url.query))

    def refused(self):
        forbidden = FOLDER / "forbidden"
        if not forbidden.exists():
            return None
        user = forbidden.read_text()
        where = f'jobsets.{GROUP} is forbidden: User "{user}" cannot create resource "jobsets" in API group "{GROUP}" in the namespace "default"'
        return failure(403, "Forbidden", where)

    def do_GET(self):
        path, query = self.split()
        name = path.rsplit("/", 1)[1]
        found = discovery(path)
        if found is not None:
            self.answer(200, found)
        elif path == SETS:
            items = [with_status(document) for document in selected(known.values(), query)]
            self.answer(200, {"kind": "JobSetList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {"resourceVersion": "1"}, "items": items})
        elif path.startswith(SETS) and name in known:
            self.answer(200, with_status(known[name]))
        elif path.startswith(SETS):
            self.answer(*failure(404, "NotFound", f'jobsets.{GROUP} "{name}" not found'))
        elif path == PODS:
            self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": selected(pods(), query)})
        elif path.startswith(PODS) and name == "log":
            self.answer(200, (FOLDER / "log").read_text())
        elif path == "/openapi/v2":  # an empty description in its binary form: nothing is known, so nothing is objected to
            self.answer(200, "")
        else:
            self.answer(*failure(404, "NotFound", f"the server could not find {path}"))

    def do_POST(self):
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = document["metadata"]["name"]
        written = {key: value for key, value in document.items() if key != "status"}
        refused = self.refused()
        if refused:
            self.answer(*refused)
        elif name in known:
            self.answer(*failure(409, "AlreadyExists", f'jobsets.{GROUP} "{name}" already exists'))
        elif wrong := list(objections(written)):
            self.answer(*failure(422, "Invalid", f'JobSet.{GROUP} "{name}" is invalid: {"; ".join(wrong)}'))
        else:
            document["metadata"].update({"namespace": "default", "uid": "1", "resourceVersion": "1"})
            known[name] = document
            self.answer(201, document)

    def do_DELETE(self):
        name = self.split()[0].rsplit("/", 1)[1]
        if known.pop(name, None) is None:
            self.answer(*failure(404, "NotFound", f'jobsets.{GROUP} "{name}" not found'))
        else:
            self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": name, "uid": "1"}})


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
partial = FOLDER / "port.partial"
partial.write_text(str(server.server_address[1]))
partial.rename(FOLDER / "port")
server.serve_forever()
