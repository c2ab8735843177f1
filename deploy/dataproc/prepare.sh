#!/usr/bin/env bash
# Photos → shards on a Dataproc cluster: creates it, runs on its master node, deletes it.
#   PROJECT=… REGION=… deploy/dataproc/prepare.sh gs://lab/photos gs://lab/shards
# Every executor reads and writes the bucket itself, with the service account of its machine; nothing is mounted.
set -euo pipefail
photos=${1:?photos: gs://BUCKET/FOLDER} shards=${2:?shards: gs://BUCKET/FOLDER}
: "${PROJECT:?}" "${REGION:?}"
cluster=${CLUSTER:-paceline-prepare}
workers=${WORKERS:-3}
binary=${PACELINE:-target/x86_64-unknown-linux-musl/release/paceline}

gcloud dataproc clusters create "$cluster" --project="$PROJECT" --region="$REGION" --image-version=2.2-debian12 \
    --num-workers="$workers" --worker-machine-type=n2-standard-2 --master-machine-type=n2-standard-2 \
    --scopes=storage-rw --max-idle=30m
# Deleted in any case; --max-idle deletes it even if this script is killed.
trap 'gcloud dataproc clusters delete "$cluster" --project="$PROJECT" --region="$REGION" --quiet' EXIT

zone=$(gcloud dataproc clusters describe "$cluster" --project="$PROJECT" --region="$REGION" --format='value(config.gceClusterConfig.zoneUri.basename())')
gcloud compute scp "$binary" "$cluster-m:paceline" --project="$PROJECT" --zone="$zone"
gcloud compute ssh "$cluster-m" --project="$PROJECT" --zone="$zone" --command="chmod +x paceline && ./paceline prepare \
    $photos $shards --size 192 --shards 64 --engine spark --spark-master yarn \
    --spark-conf spark.speculation=true"
