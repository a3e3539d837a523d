# resolver.sh ROOT PROGRAM MESSAGE: runs a program in a root. MESSAGE is a part of its error message
# for a host name that does not exist.
set -eu
cd "$1/.."
cp "$2" root/lads
rm -rf root/to
touch root/dev/null root/dev/urandom
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
grep "$3" heard
