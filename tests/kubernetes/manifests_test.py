# SPDX-License-Identifier: Apache-2.0
"""Checks examples/kubernetes/ against the command line of regroup, against itself, and, after
`make test-kubernetes`, against the schemas of Kubernetes and of custom resources:

    manifests_test.py SOURCE_FOLDER REGROUP
"""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(sys.argv[1])
REGROUP = sys.argv[2]
FOLDER = SOURCE / "examples" / "kubernetes"
DOWNLOADS = SOURCE / "build" / "kubernetes"
PYTHON = DOWNLOADS / "venv" / "bin" / "python3"

if PYTHON.exists() and pathlib.Path(sys.prefix) != DOWNLOADS / "venv":
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing} (Debian: python3-yaml, python3-jsonschema)")
    sys.exit(77)
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

KUBERNETES = "1.37"
# Exit codes of regroup, by what a Job should do about them; see docs/operating.md.
SAVED = [75]
HOPELESS = [2, 4, 126, 127]

failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {what}")


def manifests():
    for file in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield file.name, document


def job_specs(document):
    """The specs of Jobs in a document, with their names as far as it tells them."""
    kind, spec = document["kind"], document["spec"]
    if kind == "Job":
        yield document["metadata"]["name"], spec
    elif kind == "JobSet":
        for job in spec["replicatedJobs"]:
            yield None, job["template"]["spec"]
    elif kind == "TrainingRuntime":
        for job in spec["template"]["spec"]["replicatedJobs"]:
            yield None, job["template"]["spec"]


def flags_of(command):
    help_text = subprocess.run([REGROUP, command, "--help"], capture_output=True, text=True,
                               check=True).stdout
    return help_text, set(re.findall(r"--[a-z0-9-]+", help_text))


def check_command(where, words):
    check(words[:1] == ["regroup"], f"{where}: regroup is process 1")
    _, known = flags_of(words[1])
    given = {}
    for word in words[2:]:
        if not word.startswith("--"):
            break
        name, _, value = word.partition("=")
        check(name in known, f"{where}: regroup {words[1]} has the flag {name}")
        given[name] = value
    return given


def check_container(where, pod, container):
    given = check_command(where, container["command"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    port = int(given.get("--probe-port", 0)) or int(given["--listen"].rpartition(":")[2])
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        get = container[probe]["httpGet"]
        check(get["path"] == path and ports[get["port"]] == port, f"{where}: {probe}")
    token = next(v["value"] for v in container["env"] if v["name"] == "REGROUP_TOKEN_FILE")
    mount = next(m for m in container["volumeMounts"] if token.startswith(m["mountPath"] + "/"))
    volume = next(v for v in pod["volumes"] if v["name"] == mount["name"])
    check(volume["secret"]["defaultMode"] & 0o007 == 0, f"{where}: others cannot read the token")
    defined = [v["name"] for v in container["env"]]
    for word in container["command"]:
        for name in re.findall(r"\$\((\w+)\)", word):
            check(name in defined, f"{where}: {name} is defined")
    return given


def check_job(where, spec, name, services):
    template = spec["template"]["spec"]
    container = template["containers"][0]
    given = check_container(where, template, container)
    check(template["restartPolicy"] == "Never", f"{where}: podFailurePolicy needs Never")
    check(spec["podReplacementPolicy"] == "Failed", f"{where}: podFailurePolicy needs Failed")
    help_text, _ = flags_of("run")
    grace = re.search(r"--shutdown-timeout SECONDS.*?\[(\d+)\]", help_text, re.DOTALL)
    check(template["terminationGracePeriodSeconds"] > int(grace[1]),
          f"{where}: the grace period is longer than --shutdown-timeout")
    codes = {}
    for rule in spec["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            on = rule["onExitCodes"]
            check(on["values"] == sorted(set(on["values"])), f"{where}: codes are sorted")
            check(on["containerName"] == container["name"], f"{where}: the container of the codes")
            codes[rule["action"]] = on["values"]
    check(codes == {"Ignore": SAVED, "FailJob": HOPELESS}, f"{where}: exit codes {codes}")
    if "--nnodes" in given:
        least, _, most = given["--nnodes"].partition(":")
        check(spec["completions"] == spec["parallelism"] == int(most), f"{where}: pods and --nnodes")
        check(spec["maxFailedIndexes"] == int(most) - int(least), f"{where}: spare pods")
        check(spec["completionMode"] == "Indexed", f"{where}: pods need an index")
        variables = {v["name"]: v for v in container["env"]}
        check(variables["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP",
              f"{where}: POD_IP")
        if name is not None:
            service = services[template["subdomain"]]
            check(template["subdomain"] == name, f"{where}: the Service has the name of the Job")
            check(service["clusterIP"] == "None" and service["publishNotReadyAddresses"],
                  f"{where}: the Service gives names to pods that are not ready")
            check(service["selector"] == {"batch.kubernetes.io/job-name": name}, f"{where}: selector")
        else:
            check("REGROUP_HEAD" in variables, f"{where}: the head of a JobSet")


def check_deployment(where, document, services):
    spec = document["spec"]
    pod = spec["template"]["spec"]
    given = check_container(where, pod, pod["containers"][0])
    check(given["--advertise"].startswith("$(POD_IP):"), f"{where}: agents go to the pod")
    check(given["--state"].startswith("etcd://"), f"{where}: two daemons share an etcd")
    labels = spec["template"]["metadata"]["labels"]
    check(spec["selector"]["matchLabels"] == labels, f"{where}: selector")
    service = services[document["metadata"]["name"]]
    check(service["selector"] == labels, f"{where}: the Service finds the pods")


def forbid_unknown_fields(schema):
    """Unknown fields are errors, as for the API server with strict validation."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            forbid_unknown_fields(value)
    elif isinstance(schema, list):
        for value in schema:
            forbid_unknown_fields(value)


def custom_schemas():
    schemas = {}
    for file in sorted((DOWNLOADS / "crds").glob("*.yaml")):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Megabytes.
        definition = yaml.load(file.read_text(), loader)["spec"]
        for version in definition["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            forbid_unknown_fields(schema)
            schema["properties"]["metadata"] = {"type": "object"}
            key = f"{definition['group']}/{version['name']}", definition["names"]["kind"]
            schemas[key] = schema
    return schemas


def error_of(document, schemas):
    """The error that its schema finds; empty if it finds none. None: there is no schema here."""
    key = document["apiVersion"], document["kind"]
    try:
        if key in schemas:
            jsonschema.validate(document, schemas[key])
        elif kubernetes_validate is not None and not is_custom(document):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        else:
            return None
    except jsonschema.ValidationError as error:
        return f"{list(error.absolute_path)}: {error.message}"
    except kubernetes_validate.ValidationError as error:
        return f"{list(error.path)}: {error.message}"
    return ""


def is_custom(document):
    group = document["apiVersion"].rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io") or group == "jobset.x-k8s.io"


def check_schemas(schemas):
    left_out = set()
    for file, document in manifests():
        # A Job inside of another resource, as the Job that is made of it.
        jobs = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
                for _, spec in job_specs(document)]
        for each in [document, *jobs]:
            error = error_of(each, schemas)
            if error is None:
                left_out.add(each["kind"])
            check(not error, f"{file}: {each['kind']}: {error}")
    return left_out


def check_that_schemas_find_mistakes(schemas):
    for _, document in manifests():
        wrong = copy.deepcopy(document)
        wrong["spec"]["nodeCount"] = 4
        if (error := error_of(wrong, schemas)) is not None:
            check(error, f"the schema of {document['kind']} finds an unknown field")


def check_dockerfile():
    text = (FOLDER / "Dockerfile").read_text()
    lines = re.sub(r"\\\n", " ", text).splitlines()
    presets = json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]
    images, programs = [], set()
    for line in (line for line in lines if line and not line.startswith("#")):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            images.append(rest)
        elif word == "COPY" and "--from=build" in rest:
            source, target = rest.split()[1:]
            programs.add(target)
            example = re.fullmatch(r"/src/build/release/examples/(\w+)/(\w+)", source)
            if example:
                check((SOURCE / "examples" / example[1] / f"{example[2]}.cc").exists(), source)
            else:
                check(source.startswith("/usr/local/bin/"), f"Dockerfile: {source} is installed")
        elif word == "COPY":
            check((SOURCE / rest.split()[0]).exists(), f"Dockerfile: COPY {rest}")
        for preset in re.findall(r"cmake --preset (\w+)", line):
            check(preset in [p["name"] for p in presets], f"Dockerfile: preset {preset}")
        for targets in re.findall(r"--target ([\w ]+)", line):
            for target in targets.split():
                lists = "".join(f.read_text() for f in SOURCE.glob("[el]*/**/CMakeLists.txt"))
                declared = rf"(add_executable\(|_example\(|foreach\(name [^)]*\b){target}\b"
                check(re.search(declared, lists), f"Dockerfile: the target {target}")
    check(len(images) == 2, "Dockerfile: tools for the build stay out of the image")
    used = {word for _, document in manifests() for _, spec in job_specs(document)
            for word in spec["template"]["spec"]["containers"][0]["command"]
            if word.startswith("/")}
    check(used <= programs, f"Dockerfile: has the programs {used} of the manifests")


def main():
    services = {d["metadata"]["name"]: d["spec"] for _, d in manifests() if d["kind"] == "Service"}
    for file, document in manifests():
        where = f"{file}: {document['kind']}"
        for name, spec in job_specs(document):
            check_job(where, spec, name, services)
        if document["kind"] == "Deployment":
            check_deployment(where, document, services)
    check_dockerfile()
    schemas = custom_schemas()
    left_out = check_schemas(schemas)
    check_that_schemas_find_mistakes(schemas)
    if left_out:
        print("not validated by a schema: " + ", ".join(sorted(left_out)) +
              " (make test-kubernetes gets the schemas)")
    print("failed" if failures else "passed")
    sys.exit(1 if failures else 0)


main()
