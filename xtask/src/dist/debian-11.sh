# debian-11.sh DIRECTORY PROGRAM: runs a static program with the C library and the resolver of
# Debian 11, which are older than those that it is built with.
set -eu
mkdir -p "$1"
cd "$1"
mkdir -p etc/apt/preferences.d etc/apt/sources.list.d lists/partial archives/partial root
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bullseye main' \
    > etc/apt/sources.list
apt() {
    apt-get -qq -o Dir::Etc="$PWD/etc/apt" -o Dir::State::lists="$PWD/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$PWD" -o APT::Sandbox::User=root "$@"
}
apt update
apt download libc6 libc-bin libcap2 libnss-myhostname
for package in *.deb; do
    dpkg-deb -x "$package" root
done
mkdir -p root/from root/dev root/proc root/etc
echo 'hosts: files myhostname dns' > root/etc/nsswitch.conf
echo '127.0.0.1 localhost' > root/etc/hosts
echo 'a file' > root/from/file
cp "$2" root/lads
: > root/dev/null
: > root/dev/urandom
mount --bind /dev/null root/dev/null
mount --bind /dev/urandom root/dev/urandom
mount -t proc proc root/proc
chroot root /lads cp -q /from/ /to
cmp root/from/file root/to/file
# From `files`, from `myhostname`, and from nowhere.
for name in localhost "$(uname -n)"; do
    chroot root /lads rfs serve --root / --token-file /token --listen "$name:0" > heard 2>&1 &
    until grep -q 'listening on' heard; do
        kill -0 $! || { cat heard; exit 1; }
    done
    kill $!
    wait $! || true
    rm -f root/token
done
chroot root /lads rfs serve --root / --token-file /token --listen no-such-host.invalid:0 > heard 2>&1 && exit 1
grep 'getent knows no address of it' heard
