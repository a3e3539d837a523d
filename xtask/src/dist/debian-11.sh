# debian-11.sh DIRECTORY: puts the C library and the resolver of Debian 11, which are older than
# those of the host that builds the programs, into DIRECTORY/root.
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
