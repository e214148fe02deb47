#!/usr/bin/env bash
# Builds the image where no registry is within reach, on a base of Debian's packages, and lets the daemon live and die in
# it: as its user and process 1, on a read-only root. Needs root, debootstrap, buildah, podman and curl.
set -euo pipefail
cd "$(dirname "$0")/.."
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
image=activity-retention:0.1.0

base=$(mktemp -d)
end() {
  jobs -p | xargs --no-run-if-empty kill -KILL
  podman image unmount "$image" >/dev/null || true
  rm -rf "$base"
}
trap end EXIT
debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates bookworm "$base" >/dev/null
tar -C "$base" -c . | podman import --quiet - localhost/python:debian

buildah bud --isolation chroot --volume /etc/ssl/certs:/etc/ssl/certs:ro --build-arg PYTHON_IMAGE=localhost/python:debian \
  --file ops/container/Containerfile --tag "$image" .

root=$(podman image mount "$image")
user=$(podman inspect "$image" --format '{{.Config.User}}')
path=$(podman inspect "$image" --format '{{join .Config.Env " "}}')

contained() {
  exec unshare --mount --pid --fork --kill-child bash -ceu '
    mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"
    exec chroot --userspec "$2" "$1" /usr/bin/env -i "$3" "${@:4}"' - "$root" "$user" "$path" "$@"
}

(contained activity-retention --version)
contained ACTIVITY_RETENTION_DATABASE_URL=postgresql://nobody@127.0.0.1:1/none activity-retention serve --metrics-port 19464 &
serving=$!
curl --silent --retry 30 --retry-connrefused --retry-delay 1 http://127.0.0.1:19464/livez
daemon=$(pgrep --parent "$serving")
grep -E '^(NSpid|Uid|CapEff|VmHWM):' "/proc/$daemon/status"
kill -TERM "$daemon"
wait "$serving"
echo "exit code $?"
