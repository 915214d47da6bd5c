#!/usr/bin/env bash
# The first five minutes of the README, run in a network and mount namespace of its own. Argument: the gatewayd binary.
set -euo pipefail
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
export HOME=/run XDG_STATE_HOME=/run/state
ip link set lo up

"$1" &
gateway=$!
for _ in $(seq 500); do
    if mosquitto_pub -t probe -m x 2>/dev/null; then break; fi
    sleep 0.02
done
mosquitto_pub -t home/kitchen/temp -m 24.1 -r -q 1
mosquitto_sub -t 'home/+/temp' -v -q 1 -C 1 -W 10
kill -TERM "$gateway"
status=0
wait "$gateway" || status=$?
echo "stopped with $status"
