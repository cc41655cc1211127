#!/usr/bin/env bash
# Installs the database servers that the demo and the tests start, if this machine has none:
#
#   scripts/servers.sh          Postgres, MariaDB and PgBouncer; with them iproute2, by which tests cut networks
#   scripts/servers.sh peers    Redis and etcd as well, for the benchmarks against them
#   scripts/servers.sh docs     mkdocs and its theme only, for the site of docs/
#   scripts/servers.sh cc       a C compiler only: Go needs one to build Vale, for make lint
#
# Says nothing and takes no time when all is there. See docs/testing.md for other ways.
set -euo pipefail

servers_dir=${DBLOCK_SERVERS_DIR:-/var/tmp/dblock-servers-$(id -u)}

say() { printf 'servers: %s\n' "$*" >&2; }
die() {
	say "$@"
	exit 1
}

# any FILE... : one of them can be run
any() {
	local f
	for f in "$@"; do
		[[ -f $f && -x $f ]] && return 0
	done
	return 1
}

have_postgres() {
	[[ -n ${DBLOCK_POSTGRES_URL:-}${DBLOCK_POSTGRES_BIN:-} ]] && return 0
	any /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb /opt/homebrew/opt/postgresql@*/bin/initdb \
		/usr/local/opt/postgresql@*/bin/initdb /usr/local/pgsql/bin/initdb /usr/local/bin/initdb \
		/Applications/Postgres.app/Contents/Versions/*/bin/initdb "$servers_dir"/postgres-*/bin/initdb && return 0
	command -v initdb >/dev/null && command -v postgres >/dev/null
}

have_mysql() {
	[[ -n ${DBLOCK_MYSQL_DSN:-}${DBLOCK_MYSQLD:-} ]] && return 0
	command -v mariadbd >/dev/null && return 0
	command -v mysqld >/dev/null && return 0
	any /usr/sbin/{mariadbd,mysqld} /usr/libexec/{mariadbd,mysqld} /usr/local/sbin/{mariadbd,mysqld} \
		/usr/local/mysql/bin/mysqld {/opt/homebrew,/usr/local}/opt/{mariadb/bin/mariadbd,mysql/bin/mysqld} \
		"$servers_dir"/*/bin/{mariadbd,mysqld}
}

# have_peer DAEMON : on the PATH or where packages put it
have_peer() {
	command -v "$1" >/dev/null || any {/usr,/usr/local,/opt/homebrew}/{bin,sbin}/"$1"
}

[[ $# -eq 0 || ($# -eq 1 && $1 =~ ^(peers|cc|docs)$) ]] || die "usage: scripts/servers.sh [peers|cc|docs]"
command -v go >/dev/null || die "Go is not installed, or not on the PATH: see https://go.dev/doc/install"

missing=()
if [[ ${1:-} == cc ]]; then
	command -v "$(go env CC)" >/dev/null || missing+=(gcc libc6-dev)
elif [[ ${1:-} == docs ]]; then
	command -v mkdocs >/dev/null || missing+=(mkdocs mkdocs-material)
else
	have_postgres || missing+=(postgresql)
	have_mysql || missing+=(mariadb-server)
	[[ -n ${DBLOCK_PGBOUNCER:-} ]] || have_peer pgbouncer || missing+=(pgbouncer)
fi
if [[ ${1:-} == peers ]]; then
	[[ -n ${DBLOCK_REDIS_URL:-}${DBLOCK_REDIS_SERVER:-} ]] || have_peer redis-server || missing+=(redis-server)
	[[ -n ${DBLOCK_ETCD_URL:-}${DBLOCK_ETCD:-} ]] || have_peer etcd || missing+=(etcd-server)
fi
[[ ${#missing[@]} -eq 0 ]] && exit 0
# Tests that cut networks do without where it is missing, so it alone is no reason to install anything.
[[ ${1:-} =~ ^(cc|docs)$ || $(uname) != Linux ]] || have_peer ip || missing+=(iproute2)

command -v apt-get >/dev/null || die "missing: ${missing[*]}. Install them with your package manager" \
	"(Fedora: dnf install postgresql-server mariadb-server pgbouncer; macOS: brew install postgresql@17 mariadb pgbouncer;" \
	"for peers also: brew install redis etcd), or name running servers in DBLOCK_POSTGRES_URL," \
	"DBLOCK_MYSQL_DSN, DBLOCK_REDIS_URL and DBLOCK_ETCD_URL, and PgBouncer's binary in DBLOCK_PGBOUNCER."

as_root=()
if [[ $(id -u) -ne 0 ]]; then
	command -v sudo >/dev/null || die "missing: ${missing[*]}, and there is no sudo to install them with." \
		"As root: apt-get install -y --no-install-recommends ${missing[*]}"
	as_root=(sudo)
fi

# The packages start their service when installed, unless this file says no. A machine that has the
# file keeps its own.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap '"${as_root[@]}" rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
	"${as_root[@]}" chmod 755 "$policy"
fi

say "installing ${missing[*]} (not started; dblock starts servers of its own)"
log=$(mktemp)
"${as_root[@]}" apt-get update -qq >"$log" 2>&1 || say "apt-get update failed; trying with the lists at hand"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
	>>"$log" 2>&1 || {
	tail -n 30 "$log" >&2
	die "apt-get could not install ${missing[*]}: the end of what it said is above, all of it in $log"
}
rm -f "$log"

# Installed for the demo and the tests only, so they need not run after the next boot either.
if command -v systemctl >/dev/null; then
	for unit in "${missing[@]}"; do
		case $unit in
		mariadb-server | etcd-server) unit=${unit%-server} ;; # the others' units are named like their packages
		esac
		"${as_root[@]}" systemctl disable --quiet "$unit" 2>/dev/null || true
	done
fi
say "installed ${missing[*]}"
