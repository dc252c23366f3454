# Makes a machine of the namespaces that this shell was started in: what a line of the guide writes is this machine's alone, and gone with it.
# Sourced by tests/long/guide/machines.rs with the machine's NAME and the test's SCRATCH folder; for one with a Postgres (KIND=region) as a fresh Debian
# with the package `postgresql` has it: a cluster `main` that runs.
set -e
mount -t tmpfs -o mode=0755 guide "$SCRATCH/$NAME"
# A folder of this computer at a place where this machine alone writes to it.
cover() {
    mkdir -p "$2" "$SCRATCH/$NAME/of$1"/{new,work}
    mount -t overlay -o "lowerdir=$1,upperdir=$SCRATCH/$NAME/of$1/new,workdir=$SCRATCH/$NAME/of$1/work" guide "$2"
}
# The checkout before the folder that it may lie in: one above the other would be more than a kernel stacks where this computer is a container.
if [ "$KIND" = desk ]; then
    cover "$CHECKOUT" "$SCRATCH/$NAME/checkout"
    rm -rf "$SCRATCH/$NAME/checkout/deployment"
    sed -i "s/^stable_for = \"60s\"/stable_for = \"$STABLE_FOR\"/" "$SCRATCH/$NAME/checkout/config/ring.toml"
fi
for folder in /etc /var /usr/local "$HOME"; do cover "$folder" "$folder"; done
if [ "$KIND" = desk ]; then
    mkdir -p "$HOME/onceway"
    mount --bind "$SCRATCH/$NAME/checkout" "$HOME/onceway"
fi
mount -t tmpfs -o mode=0755 guide /run
mkdir -p /run/lock /run/guide
mount --bind "$SCRATCH" /run/guide
mount -t tmpfs -o mode=1777 guide /tmp
mount -t tmpfs -o mode=1777 guide /dev/shm
mount -o remount,bind,ro /
hostname "$NAME"
# There is no way to Debian's servers, and what the guide installs is there; nor is there a name server.
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/resolv.conf
ip link set lo up
if [ "$KIND" = region ]; then
    for folder in /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql; do
        mkdir -p "$folder"
        mount -t tmpfs -o mode=0755 guide "$folder"
        chown postgres: "$folder"
    done
    # What the guide makes, if this computer has it already.
    if id onceway >/dev/null 2>&1; then userdel onceway; fi
    pg_createcluster --start "$(ls /usr/lib/postgresql | sort -V | tail -n 1)" main >/dev/null
fi
set +e
cd "$HOME"
if [ "$KIND" = desk ]; then cd onceway; fi
