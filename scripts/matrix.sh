#!/usr/bin/env bash
# Runs the tests on every database server found here, one after the other, and prints a table:
#
#   scripts/matrix.sh [PACKAGE...]     default ./...
#
# Servers: the installed ones, and those that scripts/fetch-servers.sh brought. Exit status 1 if
# any run failed.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."

servers_dir=${DBLOCK_SERVERS_DIR:-/var/tmp/dblock-servers-$(id -u)}
[[ $# -gt 0 ]] || set -- ./...
unset DBLOCK_POSTGRES_URL DBLOCK_POSTGRES_BIN DBLOCK_MYSQL_DSN DBLOCK_MYSQLD DBLOCK_TEST_DOCKER

logs=$(mktemp -d)
status=0
seen=" "

row() { printf '%-10s %-10s %-7s %6s %8s\n' "$@"; }

# run KIND VERSION VARIABLE PLACE PACKAGE...
run() {
	local kind=$1 version=$2 variable=$3 place=$4 log="$logs/$1-$2" result=ok began=$SECONDS
	shift 4
	case $seen in *" $kind-$version "*) return ;; esac # a link to one that was tested
	seen+="$kind-$version "
	env DBLOCK_TEST_ENGINES="$kind" "$variable=$place" go test -count=1 -v "$@" >"$log" 2>&1 || result=FAILED
	row "$kind" "$version" "$result" "$(grep -c -- '--- PASS: ' "$log" || true)" "$((SECONDS - began))"
	[[ $result == ok ]] && return
	status=1
	grep -E -- '--- FAIL: |^FAIL|^panic: |^testdb: ' "$log" | grep -v 'engines under test' | sed 's/^/    /' || true
	echo "    all of it: $log"
}

row server version result tests seconds
for daemon in /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres \
	{/opt/homebrew,/usr/local}/opt/postgresql@*/bin/postgres "$servers_dir"/postgres-*/bin/postgres; do
	[[ -x $daemon ]] || continue
	version=$("$daemon" --version | sed -E 's/.*\) ([^ ]+).*/\1/')
	run postgres "$version" DBLOCK_POSTGRES_BIN "$(dirname "$daemon")" "$@"
done
for daemon in /usr/{sbin,libexec,local/mysql/bin}/{mariadbd,mysqld} \
	{/opt/homebrew,/usr/local}/opt/{mariadb/bin/mariadbd,mysql/bin/mysqld} "$servers_dir"/*/bin/{mariadbd,mysqld}; do
	[[ -x $daemon ]] || continue
	said=$("$daemon" --no-defaults --version)
	kind=mysql
	[[ $said == *MariaDB* ]] && kind=mariadb
	version=$(sed -E 's/.*Ver ([0-9.]+).*/\1/' <<<"$said")
	run "$kind" "$version" DBLOCK_MYSQLD "$daemon" "$@"
done

[[ $seen != " " ]] || {
	echo "matrix: no server found: run scripts/servers.sh or scripts/fetch-servers.sh" >&2
	exit 1
}
[[ $status -eq 0 ]] && rm -rf "$logs"
exit $status
