#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gets what the test of examples/kubernetes/ validates the manifests with:
#
#     build/kubernetes/venv   kubernetes-validate from PyPI, with the schemas of Kubernetes 1.37
#     build/kubernetes/crds   the custom resources of JobSet, Kubeflow Trainer and Prometheus Operator
#
# 4 MB of downloads, 150 MB of disk. Later runs do nothing. The test skips the part that is missing.
set -eu

folder=$(cd "$(dirname "$0")/../.." && pwd)/build/kubernetes
mkdir -p "$folder/crds"
if ! "$folder/venv/bin/python3" -c 'import kubernetes_validate' 2>/dev/null; then
    echo "kubernetes: installing kubernetes-validate into $folder/venv"
    rm -rf "$folder/venv"
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/python3" -m pip -q --disable-pip-version-check install kubernetes-validate==1.37.0
fi

# get FILE REPOSITORY TAG PATH
get() {
    [ ! -s "$folder/crds/$1" ] || return 0
    if ! curl -sSfL --max-time 60 -o "$folder/crds/$1.part" \
        "https://raw.githubusercontent.com/$2/$3/$4"; then
        rm -f "$folder/crds/$1.part"
        echo "kubernetes: no $1: the manifests of its kind are checked less" >&2
        return 0
    fi
    mv "$folder/crds/$1.part" "$folder/crds/$1"
}
get jobset.yaml kubernetes-sigs/jobset v0.12.0 \
    config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
get trainingruntimes.yaml kubeflow/trainer v2.3.0 \
    manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml
get trainjobs.yaml kubeflow/trainer v2.3.0 manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml
get servicemonitors.yaml prometheus-operator/prometheus-operator v0.93.0 \
    example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
