#!/usr/bin/env bash
# Register Anima's search attributes in a Temporal namespace, once:
#
#   TEMPORAL_ADDRESS=temporal.example:7233 TEMPORAL_NAMESPACE=agents deploy/search-attributes.sh
#
# The orchestrator refuses to poll while one is missing.  Creating one that is
# there already changes nothing.
set -euo pipefail

for name in AnimaNamespace AnimaAgent AnimaPhase AnimaReason AnimaSession AnimaSoulDigest AnimaParent AnimaRuntime; do
  temporal operator search-attribute create --name "$name" --type Keyword
done
for name in AnimaAttempt AnimaIteration; do
  temporal operator search-attribute create --name "$name" --type Int
done
