#!/usr/bin/env bash
# Builds the image where no registry is within reach, on a base of Debian's packages, and lets it answer as Kubernetes
# would run it. Needs root, debootstrap, buildah and podman; what is given goes to `podman run`.
set -euo pipefail
cd "$(dirname "$0")/.."
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}

base=$(mktemp -d)
trap 'rm -rf "$base"' EXIT
debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates bookworm "$base" >/dev/null
tar -C "$base" -c . | podman import --quiet - localhost/python:debian

buildah bud --isolation chroot --volume /etc/ssl/certs:/etc/ssl/certs:ro --build-arg PYTHON_IMAGE=localhost/python:debian \
  --file ops/container/Containerfile --tag activity-retention:0.1.0 .

for command in --version config; do
  podman run --rm --read-only --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges --network none "$@" \
    activity-retention:0.1.0 "$command"
done
