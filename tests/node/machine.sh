#!/bin/bash
# machine.sh FOLDER GROUP NUMBER: a machine of its own on this one, for as long as this process lives.
#
# Its processes have their own network, mounts, process ids and cgroups. What they write to /var/lib, /var/log, /etc,
# /home and /dev goes to FOLDER; the sysctls that a kubelet sets are files of their own; all processes end with this one. So that there
# is nothing to put back afterwards but the cgroups called GROUP.
set -eu
if [ "${4:-}" != inside ]; then
    for controller in /sys/fs/cgroup/*/; do
        group=$controller$2
        [ -e "$controller/cgroup.procs" ] && [ "$(basename "$controller")" != unified ] || continue
        mkdir -p "$group"
        for file in cpuset.cpus cpuset.mems; do  # a new cpuset is empty, and takes no process
            [ ! -e "$group/$file" ] || cat "$controller/$file" > "$group/$file"
        done
        echo $$ > "$group/cgroup.procs"
    done
    ln -s "$(command -v busybox)" "$1/kthreadd"
    exec unshare --mount --net --pid --cgroup --ipc --uts --fork --kill-child --mount-proc "$0" "$1" "$2" "$3" inside
fi
(exec -a sleep "$1/kthreadd" 2147483647) &  # process 2, as on any machine: it shows that all processes can be seen
mount --make-rshared /
names=$(cd /sys/fs/cgroup && for name in */; do [ ! -e "$name/cgroup.procs" ] || echo "${name%/}"; done)
mount -t tmpfs tmpfs /sys/fs/cgroup
for name in $names; do
    mkdir "/sys/fs/cgroup/$name"
    case $name in
        unified) mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified ;;
        systemd) mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd ;;
        *) mount -t cgroup -o "$name" cgroup "/sys/fs/cgroup/$name" ;;
    esac
done
mkdir "$1/shm"  # the tests' own files may be there
mount --bind /dev/shm "$1/shm"
for place in /var/lib /var/log /etc /home /dev; do
    mkdir -p "$1/over$place" "$1/work$place"
    mount -t overlay overlay -o "lowerdir=$place,upperdir=$1/over$place,workdir=$1/work$place" "$place"
done
mount --bind "$1/shm" /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    mkdir -p "/run/sysctl/${key%/*}"
    cat "/proc/sys/$key" > "/run/sysctl/$key"
    mount --bind "/run/sysctl/$key" "/proc/sys/$key"
done
mount -t tmpfs tmpfs /proc/driver  # without the rights of MIG instances the device plugin does not start
mkdir /proc/driver/nvidia-caps
awk 'BEGIN {
    n = 3
    for (gpu = 0; gpu < 8; gpu++) for (gi = 0; gi < 15; gi++) {
        printf "gpu%d/gi%d/access %d\n", gpu, gi, n++
        for (ci = 0; ci < 8; ci++) printf "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, n++
    }
}' > /proc/driver/nvidia-caps/mig-minors
hostname "gpu-node-$3"
ip link set lo up
ip link add gw0 type bridge
ip address add "10.99.0.$3/24" dev gw0
ip link set gw0 up
if [ "$3" = 1 ]; then  # the API server's
    ip address add 10.96.0.1/32 dev gw0
else
    ip route add 10.96.0.1/32 via 10.99.0.1
fi
ip route add default dev gw0
echo 1 > /proc/sys/net/ipv4/ip_forward
echo up
exec python3 -c '
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)'
