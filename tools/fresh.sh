# shellcheck shell=bash disable=SC2154 # variables of who sources this
# SPDX-License-Identifier: Apache-2.0
# tools/fresh.sh: a minimal Debian in a folder, for tools/check-fresh and tools/package/check-deb; sourced by
# bash with set -eu.
#
# `fresh_enter CHECK SUITE DIR` goes on in namespaces of its own, in which mounts and processes end with the
# script. Then `fresh_system` unpacks DIR/SUITE.tar, which debootstrap makes the first time (again with
# NEW=1), as DIR/SUITE. `step` runs commands in it. Packages come from the mirror that this machine's apt
# uses. Needs root. KEEP=1 keeps the unpacked system.

# fresh_enter CHECK SUITE DIR [ARG...]: starts the script again inside, with ARGs; sets $check, $suite, $dir,
# $root, $tar, $log
fresh_enter() {
    check=$1
    suite=$2
    mkdir -p "$3"
    dir=$(realpath "$3")
    shift 3
    root=$dir/$suite
    tar=$dir/$suite.tar
    log=$dir/$suite.log
    if [ "$(id -u)" != 0 ]; then
        echo "$check: needs root: sudo make $check SUITE=$suite" >&2
        exit 1
    fi
    [ -z "${FRESH_INSIDE:-}" ] || return 0
    sh tools/setup fresh
    [ -z "$(git status --porcelain --untracked-files=no)" ] ||
        echo "$check: changes that are not committed are not tested" >&2
    # The private mounts are gone when this returns, so what is removed here is files of ours alone.
    local rc=0
    FRESH_INSIDE=1 unshare --mount --propagation private --pid --fork --kill-child "$0" "$@" || rc=$?
    [ $rc != 0 ] || [ "${KEEP:-0}" != 0 ] || rm -rf --one-file-system "$root"
    [ $rc = 0 ] || echo "$check: $suite failed; the system is in $root, the output in $log" >&2
    exit $rc
}

# The mirror that a label of this machine's apt has: Debian, Debian-Security. Nothing if there is none.
mirror() { # LABEL
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n "s/^$1 //p" | sort -u | head -n 1
}

minimal_system() {
    local from
    from=$(mirror Debian)
    if [ -z "$from" ]; then
        echo "$check: apt of this machine has no mirror of Debian (apt-get indextargets)" >&2
        return 1
    fi
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$from" >"$dir/$suite-debootstrap.log" 2>&1 || {
        tail -n 20 "$dir/$suite-debootstrap.log" >&2
        return 1
    }
    rm -f "$root"/var/cache/apt/archives/*.deb
    tar -C "$root" --one-file-system -cf "$tar.new" . && mv "$tar.new" "$tar"
}

# What this machine knows of the network: names, certificates, proxies, how apt is to fetch.
network() {
    local security
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    security=$(mirror Debian-Security)
    {
        echo "deb $(mirror Debian) $suite main"
        echo "deb $(mirror Debian) $suite-updates main"
        [ -z "$security" ] || echo "deb $security $suite-security main"
    } >"$root/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries|Max-)' >"$root/etc/apt/apt.conf.d/90network" || true
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
        chroot "$root" update-ca-certificates >/dev/null
    fi
}

devices() {
    local node
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    mkdir "$root/dev/pts" "$root/dev/shm"
    for node in null zero full random urandom tty; do
        : >"$root/dev/$node"
        mount --bind "/dev/$node" "$root/dev/$node"
    done
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s /proc/self/fd/0 "$root/dev/stdin"
    ln -s /proc/self/fd/1 "$root/dev/stdout"
    ln -s /proc/self/fd/2 "$root/dev/stderr"
}

# inside WHO DIRECTORY COMMAND: the environment is that of a first login, with this machine's proxies if it
# has any
inside() {
    local name with=()
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [ -z "${!name:-}" ] || with+=("$name=${!name}")
    done
    # shellcheck disable=SC2016 # for the inner shell
    chroot --userspec="$1:$1" "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME="$(dirname "$2")" LANG=C.UTF-8 TERM=dumb ${with[@]+"${with[@]}"} \
        /bin/sh -c 'cd "$1" && eval "$2"' sh "$2" "$3"
}

passed=0
failures=0
# step WHO DIRECTORY COMMAND: one line when it starts and one when it ends; all output goes to the log
step() {
    local from=$SECONDS rc=0
    echo "$check: $suite, $1: $3"
    echo "==== $1: $3" >>"$log"
    inside "$@" >>"$log" 2>&1 </dev/null || rc=$?
    if [ $rc = 0 ]; then
        passed=$((passed + 1))
        echo "$check:     passed in $((SECONDS - from)) s"
    else
        failures=$((failures + 1))
        echo "$check:     failed with $rc after $((SECONDS - from)) s; the end of its output:"
        tail -n 15 "$log" | sed 's/^/    | /'
    fi
    return $rc
}
last_line() { tail -n 1 "$log" | sed "s/^/$check:     /"; }

# fresh_system: a clean system with network, devices and an empty log
fresh_system() {
    if [ ! -e "$tar" ] || [ -n "${NEW:-}" ]; then
        echo "$check: makes a minimal $suite; debootstrap takes some minutes"
        minimal_system
    fi
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$tar"
    network
    devices
    : >"$log"
}
