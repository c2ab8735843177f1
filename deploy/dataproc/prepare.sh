#!/usr/bin/env bash
# Photos → shards on a Dataproc cluster: makes it, runs on its master node, removes it.
#   PROJECT=… REGION=… FILESTORE=10.0.0.2:/share deploy/dataproc/prepare.sh photos shards
# Photos and shards lie on a Filestore that all nodes mount at /mnt/data (mount.sh, an initialisation action): tasks link finished
# shards into place, which a mounted bucket cannot. Buckets by their own addresses are not there yet.
set -euo pipefail
photos=${1:?folder of photos below the share} shards=${2:?folder for shards below the share}
: "${PROJECT:?}" "${REGION:?}" "${FILESTORE:?}"
cluster=${CLUSTER:-paceline-prepare}
workers=${WORKERS:-3}
bucket=${BUCKET:?for the initialisation action}
binary=${PACELINE:-target/x86_64-unknown-linux-musl/release/paceline}
here=$(dirname "$0")

gcloud storage cp "$here/mount.sh" "gs://$bucket/paceline/mount.sh"
gcloud dataproc clusters create "$cluster" --project="$PROJECT" --region="$REGION" --image-version=2.2-debian12 \
    --num-workers="$workers" --worker-machine-type=n2-standard-2 --master-machine-type=n2-standard-2 \
    --initialization-actions="gs://$bucket/paceline/mount.sh" --metadata="filestore=$FILESTORE" --max-idle=30m
# Removed whatever happens; --max-idle removes it where even this script is lost.
trap 'gcloud dataproc clusters delete "$cluster" --project="$PROJECT" --region="$REGION" --quiet' EXIT

zone=$(gcloud dataproc clusters describe "$cluster" --project="$PROJECT" --region="$REGION" --format='value(config.gceClusterConfig.zoneUri.basename())')
gcloud compute scp "$binary" "$cluster-m:paceline" --project="$PROJECT" --zone="$zone"
gcloud compute ssh "$cluster-m" --project="$PROJECT" --zone="$zone" --command="chmod +x paceline && ./paceline prepare \
    /mnt/data/$photos /mnt/data/$shards --size 192 --shards 64 --engine spark --spark-master yarn \
    --spark-conf spark.speculation=true"
