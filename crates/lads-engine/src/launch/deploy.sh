# Starts LADS on this host: the one that is installed, one that was received before, or one that is
# received on standard input. `lads` and the words of its command are the arguments.
#
# The script is one word of a command that the user's login shell reads, which may be tcsh or fish:
# it has no single quotes, exclamation marks and backslashes, and its lines are joined by spaces.
# @...@ are filled in by deploy.rs.
version="@VERSION@";
case $(uname -m) in @BUILDS@ *) build=; bytes=0;; esac;
user=$(id -u);

# Whether only this user may write to a directory.
is_own() {
    set -- $(ls -ldn "$1" 2>/dev/null);
    case $1/$3 in d????-??-?*/$user) return 0;; esac;
    return 1;
};
is_right() {
    [ -f "$1" ] && [ -x "$1" ] && [ "$("$1" --version 2>/dev/null </dev/null)" = "$version" ];
};
fail() {
    [ "$new" ] && rm -f "$new";
    echo "LADS-FAIL $*";
    exit 1;
};

for file in "$(command -v lads)" "$HOME/.local/bin/lads" "$HOME/bin/lads" "$HOME/.cargo/bin/lads"; do
    is_right "$file" && exec "$file" "$@";
done;

cache="${LADS_CACHE:-}";
home="${HOME:+${XDG_CACHE_HOME:-$HOME/.cache}/lads}";
shared="/var/tmp/lads-$user";
running="${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/lads}";
for place in "$cache" "$home" "$shared" "$running"; do
    [ "$place" ] && [ "$build" ] && is_own "$place" && is_right "$place/$build" &&
        [ "$(wc -c <"$place/$build")" -eq "$bytes" ] && exec "$place/$build" "$@";
done;

need() { echo "LADS-NEED $(uname -s) $(uname -m)"; };
may_receive=@MAY_RECEIVE@;
if [ -z "$may_receive" ] || [ -z "$build" ]; then
    need;
    exit 1;
fi;

# A directory with room for it, in which programs may be started.
new=;
for place in "$cache" "$home" "$shared" "$running"; do
    [ "$place" ] || continue;
    (umask 077; mkdir -p "$place") 2>/dev/null;
    is_own "$place" || continue;
    find "$place" -name ".in.*" -mtime +0 -exec rm -f {} + 2>/dev/null;
    new="$place/.in.$$.$(uname -n)";
    { dd if=/dev/zero of="$new" bs=1048576 count=@ROOM_MIB@ && echo "exit 0" >"$new" &&
        chmod 700 "$new" && "$new"; } >/dev/null 2>&1 </dev/null && break;
    rm -f "$new";
    new=;
done;
[ "$new" ] || fail "no directory has @ROOM_MIB@ MiB of room in which programs may be started:
    $cache $home $shared $running";

# What was sent before it was known that LADS is not here.
need;
dd bs=1 count=@EARLY_BYTES@ of=/dev/null 2>/dev/null;
read -r count digest || fail "nothing was received";
head -c "$count" | gzip -dc >"$new" 2>/dev/null ||
    fail "what was received is damaged, or there is no room in $place";
if command -v sha256sum >/dev/null 2>&1; then
    [ "$(sha256sum <"$new")" = "$digest  -" ] || fail "what was received is damaged";
fi;
chmod 700 "$new";
said=$("$new" --version 2>&1 </dev/null);
[ "$said" = "$version" ] || fail "it does not run there: $(echo "$said" | head -n 1)";
mv -f "$new" "$place/$build" || fail "it cannot get its name in $place";
new=;
echo "LADS-READY";
exec "$place/$build" "$@"
