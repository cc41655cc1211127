#!/bin/sh
# Runs each fuzz test for a while: scripts/fuzz.sh 30s. Ends with the first that fails.
set -e
cd "$(dirname "$0")/.."
grep -rn --include='*_test.go' -oE '^func Fuzz[A-Za-z0-9]+' . | grep -v '/testdata/' | sort | while IFS=: read -r file _ name; do
	name=${name#func }
	echo "$(dirname "$file") $name"
	"${GO:-go}" test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-30s}" -parallel 2 "$(dirname "$file")"
done
