#!/usr/bin/env bash
# Fails where ent would generate anything else than what is in the folder ent of a module: scripts/verify-ent.sh MODULE
# ent names packages by the folder that it writes to, so it has to write to that one; what was there is put back.
set -euo pipefail
cd "$1"

kept=$(mktemp -d)
cp -r ent "$kept"
trap 'rm -rf ent && cp -r "$kept/ent" ent && rm -rf "$kept"' EXIT
go tool ent generate ./ent/schema
diff -r "$kept/ent" ent || {
	echo "$1/ent is not up to date: make generate" >&2
	exit 1
}
