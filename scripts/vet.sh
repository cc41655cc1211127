#!/bin/sh
# Has sqlc prepare every query of db/ on a Postgres, and on each server of MySQL and MariaDB that is found:
# scripts/vet.sh SQLC. It calls itself beside the servers, which `dblock demo` starts, or finds in DBLOCK_POSTGRES_URL
# and DBLOCK_MYSQL_DSN.
set -e
cd "$(dirname "$0")/.."
demo="${GO:-go} run ./cmd/dblock demo"
case ${VET_STEP:-} in
"")
	VET_STEP=postgres VET_MYSQL_DSN=${DBLOCK_MYSQL_DSN:-} $demo --engine postgres -- scripts/vet.sh "$@"
	;;
postgres)
	VET_RAN=$(mktemp)
	export VET_RAN DBLOCK_VET_POSTGRES="$DBLOCK_POSTGRES_URL"
	VET_STEP=mysql DBLOCK_MYSQL_DSN=$VET_MYSQL_DSN $demo -- scripts/vet.sh "$@"
	ran=$(cat "$VET_RAN")
	rm "$VET_RAN"
	[ -n "$ran" ] || { echo "vet: neither MySQL nor MariaDB was found" >&2 && exit 1; }
	;;
mysql)
	[ -n "${DBLOCK_MYSQL_DSN:-}" ] || exit 0 # the Postgres
	echo yes >"$VET_RAN"
	DBLOCK_VET_MYSQL=$DBLOCK_MYSQL_DSN "$@" vet
	;;
esac
