"""What hostile kernels try; each is the middle of a kernel file, after `hostile.PRELUDE`."""

REACH_PROCESSES = """
def links(folder):
    return [os.readlink(f"{{folder}}/{{name}}") for name in os.listdir(folder)]
visible = {{int(name) for name in os.listdir("/proc") if name.isdigit()}}
for pid in {{*visible, *{guesses}}} - {{os.getpid()}}:
    for name in ("environ", "mem", "maps", "auxv", "root", "cwd"):
        attempt(f"{{pid}}/{{name}}", look, f"/proc/{{pid}}/{{name}}")
    for name in ("fd", "ns"):
        attempt(f"{{pid}}/{{name}}", links, f"/proc/{{pid}}/{{name}}")
    attempt(f"{{pid}} descriptors", lambda: call("syscall", 438, os.pidfd_open(pid), 0, 0))
    attempt(f"{{pid}} attached", call, "ptrace", 16, pid, None, None)
    buffer = ctypes.create_string_buffer(32)
    remote = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    attempt(f"{{pid}} memory", call, "process_vm_readv", pid, remote, 1, remote, 1, 0)
"""
SIGNAL_ALL = """
for pid in (1, -1, *{guesses}):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            pass
"""
"""Sending to the first process of one's namespace may be allowed: the kernel has it take no notice."""
LISTENING = """
listening = builtins.listening = [socket.create_server(("127.0.0.1", 47111))]
for address in ("\\0tritonforge-neighbour", "/tmp/neighbour", "/dev/shm/neighbour"):
    listening.append(socket.socket(socket.AF_UNIX))
    listening[-1].bind(address)
    listening[-1].listen()
for folder in ("/tmp", "/dev/shm"):
    open(folder + "/note", "w").write("the neighbour's")
"""
REACH_NEIGHBOUR = """
attempt("tcp", connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 47111))
for address in ("\\0tritonforge-neighbour", "/tmp/neighbour", "/dev/shm/neighbour"):
    attempt(address, connect, socket.AF_UNIX, socket.SOCK_STREAM, address)
attempt("note in /tmp", look, "/tmp/note")
attempt("note in /dev/shm", look, "/dev/shm/note")
# One that a neighbour would find in /dev/pts.
attempt("terminal", os.open, "/dev/ptmx", os.O_RDWR)
"""
ACCEPTED = """
for one in builtins.listening:
    one.setblocking(False)
    attempt(repr(one.getsockname()), one.accept)
"""
OUTLIVE = """
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        call("prctl", 15, {name!r}.encode())
        os.write(writer, b"!")
        while True:
            signal.pause()
    os._exit(0)
os.read(reader, 1)
threading.Thread(target=threading.Event().wait, daemon=True).start()
threading.Thread(target=threading.Event().wait).start()
"""
REACH_OUT = """
import fcntl, struct
attempt("internet", connect, socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 53))
attempt("internet, IPv6", connect, socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 53))
attempt("name", socket.getaddrinfo, "example.com", 80)
attempt("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
attempt("raw packets", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3)
# The hypervisor, ciphers of the kernel, other buses: none of these belongs to a network namespace.
for family, kind in ((40, socket.SOCK_STREAM), (40, socket.SOCK_DGRAM), (38, socket.SOCK_SEQPACKET), (30, 4), (31, 3)):
    attempt(f"family {family}", socket.socket, family, kind, 0)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    up = struct.pack("16sH14x", b"lo", 1)
    attempt("interface up", fcntl.ioctl, any_socket, 0x8914, up)
got.update({name: index for index, name in socket.if_nameindex() if name != "lo"})
"""
WRITE_FILES = """
import glob, sysconfig, torch, triton
folders = ["/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/run", "/run/tritonforge", "/run/tritonforge/base-cache"]
folders += ["/var", "/opt", "/root", "/home", *{folders}, *sysconfig.get_paths().values()]
folders += [*torch.__path__, *triton.__path__]
for folder in folders:
    attempt(folder, open, folder + "/escaped", "w")
worker = sys.modules["tritonforge_worker.serve"].__file__
for file in (torch.__file__, triton.__file__, worker, sys.executable, "/bin/sh", *glob.glob("/run/tritonforge/*/*/*")):
    attempt(file, open, file, "r+b")
    attempt(file + " removed", os.remove, file)
    attempt(file + " replaced", os.rename, "/tmp/work/kernel.py", file)
    attempt(file + " mode", os.chmod, file, 0o755)
    attempt(file + " times", os.utime, file)
"""
WRITE_MACHINE = """
for folder in ("/dev", "/dev/pts", "/sys", "/sys/fs/cgroup", "/proc", "/proc/sys/kernel"):
    attempt(folder, open, folder + "/escaped", "w")
for name in ("kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "vm/swappiness", "user/max_user_namespaces"):
    attempt(name, os.open, "/proc/sys/" + name, os.O_WRONLY)
for file in ("/proc/sysrq-trigger", "/proc/mtrr", "/proc/irq/default_smp_affinity", "/sys/power/state",
             "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/kmsg", "/dev/mem"):
    attempt(file, os.open, file, os.O_WRONLY)
for file in ("/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/nvme0n1"):
    attempt(file + " read", os.open, file, os.O_RDONLY)
for name in ("null", "zero", "full", "random", "urandom", "tty"):
    attempt(name + " mode", os.chmod, "/dev/" + name, 0o666)
    attempt(name + " owner", os.chown, "/dev/" + name, os.getuid(), os.getgid())
"""
SPOIL = """
import glob, torch, triton
os.environ["ESCAPED"] = "1"
sys.modules["escaped"] = builtins.escaped = torch.escaped = triton.escaped = sys
builtins.open, torch.empty_like, triton.compile, os.kill = None, None, None, None
for folder in ("/tmp", "/tmp/work", "/dev/shm"):
    os.close(os.open(folder + "/escaped", os.O_CREAT))
for file in glob.glob("/tmp/work/triton-cache/*/*"):
    os.truncate(file, 0)
for file in (torch.__file__, triton.__file__, *glob.glob("/run/tritonforge/base-cache/*/*")):
    attempt(file, os.truncate, file, os.path.getsize(file))
"""
CHANGE_NAMESPACES = """
for name, flag in {"mounts": 0x20000, "names": 0x4000000, "ipc": 0x8000000, "users": 0x10000000, "pids": 0x20000000,
                   "network": 0x40000000, "cgroup": 0x2000000, "time": 0x80}.items():
    attempt(name, call, "unshare", flag)
    attempt(name + " with users", call, "unshare", flag | 0x10000000)
for pid in (1, os.getpid()):
    for name in os.listdir("/proc/self/ns"):
        attempt(f"{pid}/{name}", lambda: call("setns", os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), 0))
attempt("tmpfs", call, "mount", b"none", b"/tmp", b"tmpfs", 0, None)
attempt("proc", call, "mount", b"proc", b"/tmp", b"proc", 0, None)
attempt("bind", call, "mount", b"/", b"/tmp", None, 4096, None)
attempt("writable", call, "mount", None, b"/usr", None, 32 | 4096, None)
attempt("fsopen", call, "syscall", 430, b"tmpfs", 0)
attempt("open_tree", call, "syscall", 428, -100, b"/", 1)
for folder in ("/proc", "/tmp", "/dev/shm", "/usr", "/dev/pts", "/proc/sys"):
    attempt(folder, call, "umount2", folder.encode(), 2)
attempt("root", os.chroot, "/tmp")
attempt("host name", call, "sethostname", b"escaped", 7)
attempt("disk", os.mknod, "/tmp/escaped", 0o60666, os.makedev(8, 0))
attempt("memory", os.mknod, "/tmp/escaped", 0o20666, os.makedev(1, 1))
attempt("kernel log", call, "klogctl", 3, ctypes.create_string_buffer(64), 64)
attempt("priority", os.setpriority, os.PRIO_PROCESS, 0, -20)
attempt("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))
"""
CHANGE_USER = """
attempt("user", os.setuid, 0)
attempt("users", os.setresuid, 0, 0, 0)
attempt("group", os.setgid, 0)
attempt("groups", os.setgroups, [0])
all_of_them = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
version = (ctypes.c_uint32 * 2)(0x20080522, 0)
attempt("capabilities", call, "capset", ctypes.byref(version), ctypes.byref(all_of_them))
attempt("ambient", call, "prctl", 47, 2, 21, 0, 0)
attempt("privileges", call, "prctl", 38, 0, 0, 0, 0)
import resource
for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        got[f"limit {limit}"] = "raised"
    except (OSError, ValueError):
        tried += 1
"""
CALL_KERNEL = """
import errno
numbers = {
    "x86_64": dict(shmget=29, semget=64, msgget=68, add_key=248, request_key=249, keyctl=250, perf_event_open=298,
                   bpf=321, userfaultfd=323, io_uring_setup=425),
    "aarch64": dict(msgget=186, semget=190, shmget=194, add_key=217, request_key=218, keyctl=219, perf_event_open=241,
                    bpf=280, userfaultfd=282, io_uring_setup=425),
}[os.uname().machine]
zeros = ctypes.create_string_buffer(256)
arguments = {
    "shmget": (0, 4096, 0o1600), "semget": (0, 1, 0o1600), "msgget": (0, 0o1600), "keyctl": (0, -3, 0),
    "add_key": (b"user", b"escaped", b"x", 1, -4), "request_key": (b"user", b"escaped", None, 0),
    "perf_event_open": (zeros, 0, -1, -1, 0), "bpf": (0, zeros, 256), "userfaultfd": (1,), "io_uring_setup": (8, zeros),
}
for name, number in numbers.items():
    if libc.syscall(number, *arguments[name]) != -1 or ctypes.get_errno() not in {errno.EPERM, errno.ENOSYS}:
        got[name] = ctypes.get_errno()
"""
RUN_SETUID = """
import stat
programs = [program for program in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp")
            if os.path.exists(program) and os.stat(program).st_mode & stat.S_ISUID]
for program in programs:
    nowhere = subprocess.DEVNULL
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere) as child:
        facts = dict(line.split(":", 1) for line in open(f"/proc/{child.pid}/status"))
        child.kill()
    if set(facts["Uid"].split()) != {str(os.getuid())} or int(facts["CapPrm"], 16) or int(facts["CapEff"], 16):
        got[program] = facts["Uid"] + facts["CapEff"]
    tried += 1
"""
