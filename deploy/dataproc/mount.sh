#!/usr/bin/env bash
# Initialisation action of every node: mounts the share named by the cluster's metadata.
set -euo pipefail
share=$(/usr/share/google/get_metadata_value attributes/filestore)
apt-get update -qq
apt-get install -y -qq nfs-common
mkdir -p /mnt/data
mount -t nfs "$share" /mnt/data
chmod 1777 /mnt/data
