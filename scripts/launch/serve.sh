#!/usr/bin/env bash
# SGLang servers of one node, for Workers or the judge: replicas of TP GPUs each, on ports from PORT.
#
#   scripts/launch/serve.sh Qwen/Qwen3-4B-Instruct-2507                          # 8 Workers, ports 8101 to 8108
#   TP=8 PORT=8100 scripts/launch/serve.sh Qwen/Qwen3-235B-A22B-Instruct-2507    # the judge, one replica
set -euo pipefail
model=${1:?a model folder or hub name}
: "${GPUS:=8}" "${TP:=1}" "${PORT:=8101}" "${CONTEXT:=8192}"
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT # its own servers, not the caller's whole group

for ((i = 0; i < GPUS / TP; i++)); do
    CUDA_VISIBLE_DEVICES=$(seq -s, $((i * TP)) $((i * TP + TP - 1))) \
        python -m sglang.launch_server --model-path "$model" --served-model-name "$model" \
        --host 0.0.0.0 --port $((PORT + i)) --tp-size "$TP" --context-length "$CONTEXT" \
        --mem-fraction-static 0.9 --enable-cache-report --enable-metrics &
done
# One that ends takes the others along, so that whoever started this notices.
wait -n || true
exit 1
