# Sourced at the guide's "your machine", which has ADDRESS: the network between the machines, and what stands for two programs there.
ip link add name lan type bridge
ip link set lan up
ip address add "$ADDRESS" dev lan

# Connects the machine NAME, whose process in the eyes of this one is PID, under ADDRESS.
connect() {
    ip link add "$1" type veth peer name eth0 netns "$2"
    ip link set "$1" master lan up
    nsenter --target "$2" --net ip address add "$3" dev eth0
    nsenter --target "$2" --net ip link set eth0 up
    echo "$2" >"/run/guide/${3%/*}.pid"
}

# The build is a step of .ci/nightly with the same words, and takes minutes; here the binary under test takes its place.
cargo() {
    if [ "$*" != 'build --release --locked -p onceway --features jemalloc' ]; then
        echo "only the line that .ci/nightly has is played, not cargo $*" >&2
        return 1
    fi
    mkdir -p target/release && cp "$BINARY" target/release/onceway
}

# There is no ssh server: what goes to a machine is copied into it, by the address that its name has here.
scp() {
    local to=${!#} address
    address=$(getent ahostsv4 "$(expr "$to" : 'root@\([^:]*\):')" | head -n 1 | cut -d' ' -f1)
    cp -r "${@:1:$#-1}" "/proc/$(cat "/run/guide/$address.pid")/root${to#*:}"
}
