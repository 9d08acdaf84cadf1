#!/bin/sh
# through_proxy.sh PORT PRELOAD COMMAND...: runs COMMAND with its libfabric connections led through the proxy at PORT
ATTACK_PROXY=$1
LD_PRELOAD=$2${LD_PRELOAD:+:$LD_PRELOAD}
export ATTACK_PROXY LD_PRELOAD
shift 2
exec "$@"
