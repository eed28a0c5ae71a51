#!/bin/bash
# tests/failing/wraps.sh: of the functions below, by which a library asks for memory, descriptors, mappings or threads,
# or writes, each that libgyre and libgyre-train call is one that tests/failing/inject.c can let fail. Not among them,
# though they may fail, too: fprintf, fputs, fclose, link, dlopen, syscall, setenv, recvmsg (of descriptors),
# ucp_config_read, ucp_am_recv_data_nbx (see inject.c), what hwloc and utf8proc make.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
asks='malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|strn?dup|v?asprintf|open_memstream|fmemopen|fd?open|popen'
asks+='|opendir|fdopendir|scandir|open|openat|creat|socket|socketpair|accept4?|pipe2?|dup[23]?|eventfd|signalfd|timerfd_create'
asks+='|epoll_create1?|inotify_init1?|memfd_create|shm_open|mko?stemps?|mmap|mremap|ftruncate|fallocate|posix_fallocate'
asks+='|pthread_create|write|pwrite|writev|fwrite|fflush|fsync|fdatasync|rename|renameat2?|send|sendto|sendmsg|getline|(__)?getdelim'
asks+='|mkdir|XXH3_createState|glob|pcre2_compile_8|pcre2_match_data_create_8'
asks+='|realpath|getifaddrs|getaddrinfo|ucp_init_version|ucp_[a-z_]*(create|get_address|get_efd|set_am_recv_handler|nbx|mem_map|rkey_pack|rkey_unpack)'
{
    nm -u "$B/lib/libgyre.a" "$B/lib/libgyre-train.a" 2>/dev/null | awk '$1 == "U" { print $2 }'
    sed -n 's/^UCX_CALL(\(.*\))$/\1/p' comm/ucx/calls.def
} | grep -xE "$asks" | grep -vx ucp_am_recv_data_nbx | sort -u >"$W/asked"
{
    grep ^FAILS tests/failing/inject.c | cut -d, -f3
    grep ^UCX_FAILS tests/failing/inject.c | cut -d, -f2
} | tr -d ' ' | sort -u >"$W/fails"
check "they ask for something" [ "$(wc -l <"$W/asked")" -gt 20 ]
check "of UCX, too" grep -q ^ucp_ "$W/asked"
comm -23 "$W/asked" "$W/fails" >"$W/missing"
check "all can fail; not: $(tr '\n' ' ' <"$W/missing")" test ! -s "$W/missing"
finish
