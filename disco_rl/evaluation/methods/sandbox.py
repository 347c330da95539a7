"""The kernel's lock on the process that runs a model's code: system calls by allow-list.

Applied inside that process, for good (`no_new_privs` and a seccomp filter): it keeps its pipes and
its memory, and can open no file or socket, start no process or thread, and signal nobody. Standard
library only, since the process imports nothing of ours.
"""

import ctypes
import platform
import resource
import struct
import sys

# What pure computation, memory and pipes need. Numbers from the kernel's tables.
_ALLOWED = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9,
        "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
        "rt_sigreturn": 15, "readv": 19, "writev": 20, "sched_yield": 24, "mremap": 25,
        "madvise": 28, "nanosleep": 35, "getpid": 39, "exit": 60, "gettimeofday": 96,
        "getrusage": 98, "times": 100, "sigaltstack": 131, "gettid": 186, "time": 201,
        "futex": 202, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
        "clock_nanosleep": 230, "exit_group": 231, "getrandom": 318, "rseq": 334,
    },
    "aarch64": {
        "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "ppoll": 73,
        "fstat": 80, "close": 57, "exit": 93, "exit_group": 94, "futex": 98, "nanosleep": 101,
        "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "sched_yield": 124,
        "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "times": 153, "getrusage": 165, "gettimeofday": 169, "getpid": 172,
        "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226,
        "madvise": 233, "getrandom": 278, "rseq": 293,
    },
}  # fmt: skip
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # denied: EPERM
_X32 = 0x40000000  # x86-64's second table of calls, under the same architecture


def supported() -> bool:
    return sys.platform == "linux" and platform.machine() in _ALLOWED


def lock(*, memory: int, seconds: int) -> None:
    """Limits of memory (bytes) and processor time (seconds), then the filter. Can't be undone.

    Raises `OSError` where the kernel refuses, and then nothing may be run.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    machine = platform.machine()
    program = b"".join(_filter(machine))
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog {unsigned short len; struct sock_filter *filter}
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    argument = ctypes.create_string_buffer(header, len(header))
    for call in ((38, 1, 0, 0, 0), (22, 2, ctypes.addressof(argument), 0, 0)):
        if libc.prctl(*(ctypes.c_ulong(value) for value in call)) != 0:
            raise OSError(ctypes.get_errno(), "the kernel refused to lock the process (prctl)")


def _filter(machine: str) -> list[bytes]:
    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    steps = [
        step(_LOAD, 4),  # seccomp_data.arch
        step(_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        step(_RETURN, _KILL),
        step(_LOAD, 0),  # seccomp_data.nr
        step(_AT_LEAST, _X32, 0, 1),
        step(_RETURN, _KILL),
    ]
    for number in _ALLOWED[machine].values():
        steps += [step(_EQUAL, number, 0, 1), step(_RETURN, _ALLOW)]
    return [*steps, step(_RETURN, _DENY)]
