#!/bin/sh
# Repeats the tests of faults, with new seeds, until a time is over: scripts/soak.sh 10m (s, m or h). Stops at the first
# round that fails. The round that runs at the end is completed. It begins with 100,000 simulations, which take about
# ten minutes.
set -e
cd "$(dirname "$0")/.."
asked=${1:-10m}
case $asked in
*s) seconds=${asked%s} ;;
*m) seconds=$((${asked%m} * 60)) ;;
*h) seconds=$((${asked%h} * 3600)) ;;
*) echo "soak: $asked is not a time such as 90s, 10m or 2h" >&2 && exit 2 ;;
esac
each=30 # seconds of a round for each test that can go on for as long as asked
[ "$seconds" -lt $each ] && each=$seconds
begin=$(date +%s)
round=0
DBLOCK_SOAK=seeds "${GO:-go}" test -count=1 -timeout 0 -run TestSeedsFaults -v ./internal/locksim # 100,000 simulations
while round=$((round + 1)); do
	echo "soak: round $round, $(($(date +%s) - begin)) of $seconds s"
	DBLOCK_SOAK=${each}s "${GO:-go}" test -p 1 -count=1 -timeout 0 -run Faults ./...
	[ $(($(date +%s) - begin)) -ge "$seconds" ] && break
done
echo "soak: $round rounds in $(($(date +%s) - begin)) s"
