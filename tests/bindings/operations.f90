! SPDX-License-Identifier: Apache-2.0
! tests/bindings/operations.f90: every call of module gyre against reference values; fortran.sh runs it.
module own_functions
  use, intrinsic :: iso_c_binding
  use gyre
  implicit none

contains

  ! right after left, of functions real(f) * x + aimag(f); counts its calls in user
  integer(c_int) function after(left, right, count, type, user) bind(c)
    type(c_ptr), value :: left, right, user
    integer(c_size_t), value :: count
    integer(c_int), value :: type
    complex(c_double), pointer :: l(:), r(:)
    integer(c_int), pointer :: calls
    call c_f_pointer(left, l, [count])
    call c_f_pointer(right, r, [count])
    call c_f_pointer(user, calls)
    calls = calls + 1
    r = cmplx(real(r) * real(l), real(r) * aimag(l) + aimag(r), c_double)
    after = merge(GYRE_OK, GYRE_ERR_TYPE, type == 14)
  end function

  integer(c_int) function fails(left, right, count, type, user) bind(c)
    type(c_ptr), value :: left, right, user
    integer(c_size_t), value :: count
    integer(c_int), value :: type
    fails = GYRE_ERR_INVALID
    if (count < 0 .or. type < 0 .or. c_associated(left, right) .or. c_associated(user)) fails = GYRE_OK
  end function

  ! adds up the shards of the buckets that have landed
  subroutine landed(bucket, user) bind(c)
    type(gyre_bucket), intent(in) :: bucket
    type(c_ptr), value :: user
    real(c_double), pointer :: data(:), total
    call c_f_pointer(bucket%data, data, [bucket%count])
    call c_f_pointer(user, total)
    total = total + sum(data(bucket%shard_offset + 1:bucket%shard_offset + bucket%shard_count))
  end subroutine

end module

program operations
  use, intrinsic :: iso_fortran_env
  use, intrinsic :: iso_c_binding
  use gyre
  use own_functions
  implicit none
  type(gyre_comm) :: world
  integer :: failed = 0, checked = 0, n, me
  call gyre_init(world)
  n = gyre_comm_size(world)
  me = gyre_comm_rank(world)
  call types()
  call sums()
  call moves()
  call messages()
  call communicators()
  call own()
  call leaves()
  call plans()
  call buckets()
  call errors()
  call gyre_all_reduce(recv=failed, op=GYRE_SUM, comm=world)
  if (me == 0) print '(i0,a,i0,a)', checked, ' checks, ', failed, ' failed'
  call gyre_finalize(world)
  if (failed /= 0) stop 1

contains

  subroutine check(what, good)
    character(len=*), intent(in) :: what
    logical, intent(in) :: good
    checked = checked + 1
    if (good) return
    failed = failed + 1
    write (error_unit, '(a,i0,2a)') 'rank ', me, ': ', what
  end subroutine

  ! Sums of 1, 2, ... n of every type, in place, and of several ranks of arrays
  subroutine types()
    real(real32) :: a(3)
    real(real64) :: b(2, 2), scalar
    complex(real32) :: c(3)
    complex(real64) :: d(3)
    integer(int32) :: i(3)
    integer(int64) :: j(3)
    integer(int8) :: k(3)
    logical :: l(2)
    logical(c_bool) :: m(2)
    real(real64), allocatable :: empty(:)
    real(real64), pointer :: p(:)
    integer :: all
    all = n * (n + 1) / 2
    a = me + 1
    call gyre_all_reduce(recv=a, op=GYRE_SUM, comm=world)
    call check('real32', all_are(real(a, real64), all))
    b = me + 1
    call gyre_all_reduce(recv=b, op=GYRE_SUM, comm=world)
    call check('real64', all_are(reshape(b, [4]), all))
    scalar = me + 1
    call gyre_all_reduce(recv=scalar, op=GYRE_SUM, comm=world)
    call check('scalar', all_are([scalar], all))
    c = cmplx(me + 1, 1, real32)
    call gyre_all_reduce(recv=c, op=GYRE_SUM, comm=world)
    call check('complex32', all_are(real(real(c), real64), all) .and. all_are(real(aimag(c), real64), n))
    d = cmplx(me + 1, 1, real64)
    call gyre_all_reduce(recv=d, op=GYRE_SUM, comm=world)
    call check('complex64', all_are(real(d), all) .and. all_are(aimag(d), n))
    i = me + 1
    call gyre_all_reduce(recv=i, op=GYRE_MAX, comm=world)
    call check('int32', all_are(real(i, real64), n))
    j = me + 1_int64
    call gyre_all_reduce(recv=j, op=GYRE_MIN, comm=world)
    call check('int64', all_are(real(j, real64), 1))
    k = int(me + 1, int8)
    call gyre_all_reduce(recv=k, op=GYRE_SUM, comm=world)
    call check('int8', all_are(real(k, real64), all))
    l = [me == 0, .true.]
    call gyre_all_reduce(recv=l, op=GYRE_LAND, comm=world)
    call check('logical', (l(1) .eqv. n == 1) .and. l(2))
    m = [me == 0, .false.]
    call gyre_all_reduce(recv=m, op=GYRE_LOR, comm=world)
    call check('c_bool', logical(m(1) .and. .not. m(2)))
    scalar = 1
    call gyre_all_reduce(recv=scalar, op=gyre_scaled_sum(0.5_real64), comm=world)
    call check('scaled sum', abs(scalar - 0.5 * n) < 1e-14)
    allocate (empty(0))
    call gyre_all_reduce(recv=empty, op=GYRE_SUM, comm=world)
    allocate (p(5))
    p = me + 1
    call gyre_all_reduce(recv=p(2:4), op=GYRE_SUM, comm=world)
    call check('a contiguous section', all_are(p(2:4), all) .and. all_are(p(1:5:4), me + 1))
    call explicit_shape(p, 5)
    call check('an explicit-shape dummy', all_are(p(1:5:4), all))
    deallocate (p)
  end subroutine

  subroutine explicit_shape(x, size)
    integer, intent(in) :: size
    real(real64), intent(inout) :: x(size)
    x = me + 1
    call gyre_all_reduce(recv=x, op=GYRE_SUM, comm=world)
  end subroutine

  logical function all_are(x, value)
    real(real64), intent(in) :: x(:)
    integer, intent(in) :: value
    all_are = all(abs(x - value) < 1e-9)
  end function

  subroutine sums()
    real(real64), asynchronous :: s(4), r(4), w(2 * n), v(2)
    type(gyre_request) :: request
    integer :: all, root, i, counts(0:n - 1)
    logical :: finished
    all = n * (n + 1) / 2
    s = me + 1
    call gyre_all_reduce(s, r, GYRE_SUM, world)
    call check('all_reduce', all_are(r, all))
    r = 0
    call gyre_iall_reduce(s, r, GYRE_SUM, world, request)
    call gyre_wait(request)
    call check('iall_reduce', all_are(r, all))
    call gyre_scan(s, r, GYRE_SUM, world)
    call check('scan', all_are(r, (me + 1) * (me + 2) / 2))
    r = s
    call gyre_iscan(recv=r, op=GYRE_SUM, comm=world, request=request)
    call gyre_wait(request)
    call check('iscan', all_are(r, (me + 1) * (me + 2) / 2))
    call gyre_exscan(s, r, GYRE_SUM, world)
    call check('exscan', me == 0 .or. all_are(r, me * (me + 1) / 2))
    r = 0
    call gyre_iexscan(s, r, GYRE_SUM, world, request)
    call gyre_wait(request)
    call check('iexscan', me == 0 .or. all_are(r, me * (me + 1) / 2))
    do root = 0, n - 1
      r = 0
      if (me == root) then
        call gyre_reduce(s, r, GYRE_SUM, root, world)
        call check('reduce', all_are(r, all))
        r = s
        call gyre_ireduce(recv=r, op=GYRE_SUM, root=root, comm=world, request=request)
      else
        call gyre_reduce(s, op=GYRE_SUM, root=root, comm=world)
        call gyre_ireduce(s, op=GYRE_SUM, root=root, comm=world, request=request)
      end if
      call gyre_wait(request)
      call check('ireduce', me /= root .or. all_are(r, all))
      r = me + 1
      call gyre_broadcast(r, root, world)
      call check('broadcast', all_are(r, root + 1))
      r = me + 1
      call gyre_ibroadcast(r, root, world, request)
      finished = .false.
      do while (.not. finished)
        call gyre_test(request, finished)
        call gyre_progress(world)
      end do
      call check('ibroadcast', all_are(r, root + 1))
    end do
    w = me + 1
    call gyre_reduce_scatter(w, v, GYRE_SUM, world)
    call check('reduce_scatter', all_are(v, all))
    v = 0
    call gyre_ireduce_scatter(w, v, GYRE_SUM, world, request)
    call gyre_wait(request)
    call check('ireduce_scatter', all_are(v, all))
    call gyre_reduce_scatter(recv=w, op=GYRE_SUM, comm=world)
    call check('reduce_scatter in place', all_are(w(2 * me + 1:2 * me + 2), all))
    counts = [(2, i=0, n - 1)]
    w = me + 1
    v = 0
    call gyre_reduce_scatterv(w, v, counts, GYRE_SUM, world)
    call check('reduce_scatterv', all_are(v, all))
    call gyre_ireduce_scatterv(recv=w, counts=int(counts, int64), op=GYRE_SUM, comm=world, request=request)
    call gyre_wait(request)
    call check('ireduce_scatterv', all_are(w(2 * me + 1:2 * me + 2), all))
  end subroutine

  ! Rank r sends 100 r + 1, 100 r + 2, ...; r + 1 of them in v forms, whose displacements leave holes.
  subroutine moves()
    integer, asynchronous :: own(me + 1), two(2), all(2 * n), everything(2 * n), to(n), from(n), expected(n)
    integer, asynchronous, allocatable :: v(:), h(:), close(:), apart(:)
    integer :: counts(n), holes(n), ones(n), ranks(n), r, k, total, root, status
    type(gyre_request) :: request
    own = [(100 * me + k, k=1, me + 1)]
    two = [(100 * me + k, k=1, 2)]
    everything = [((100 * r + k, k=1, 2), r=0, n - 1)]
    counts = [(r, r=1, n)]
    total = n * (n + 1) / 2
    holes = [(r * (r + 1) / 2 + r, r=0, n - 1)]
    close = [((100 * r + k, k=1, r + 1), r=0, n - 1)]
    apart = [((merge(100 * r + k, -1, k <= r + 1), k=1, r + 2), r=0, n - 1)]
    v = 0 * close
    h = 0 * apart - 1
    call gyre_all_gather(two, all, world)
    call check('all_gather', all_same(all, everything))
    all = 0
    all(2 * me + 1:2 * me + 2) = two
    call gyre_iall_gather(recv=all, comm=world, request=request)
    call gyre_wait(request)
    call check('iall_gather', all_same(all, everything))
    call gyre_all_gatherv(own, v, counts, world)
    call check('all_gatherv', all_same(v, close))
    call gyre_iall_gatherv(own, h, counts, world, holes, request)
    call gyre_wait(request)
    call check('iall_gatherv', all_same(h, apart))
    do root = 0, n - 1
      all = 0
      v = 0
      h = -1
      if (me == root) then
        call gyre_gather(two, all, root, world)
        call check('gather', all_same(all, everything))
        all(1:2 * root) = 0
        call gyre_igather(recv=all, root=root, comm=world, request=request)
        call gyre_wait(request)
        call check('igather', all_same(all, everything))
        call gyre_scatter(all, two, root, world)
        call gyre_iscatter(all, root=root, comm=world, request=request)
        call gyre_wait(request)
        call gyre_gatherv(own, v, counts, root, world)
        call check('gatherv', all_same(v, close))
        call gyre_igatherv(own, h, counts, root, world, holes, request)
        call gyre_wait(request)
        call check('igatherv', all_same(h, apart))
        own = 0
        call gyre_scatterv(v, counts, own, root, world)
        call gyre_iscatterv(h, counts, own, root, world, holes, request)
        call gyre_wait(request)
      else
        call gyre_gather(two, root=root, comm=world)
        call gyre_igather(two, root=root, comm=world, request=request)
        call gyre_wait(request)
        two = 0
        call gyre_scatter(recv=two, root=root, comm=world)
        call check('scatter', all_same(two, everything(2 * me + 1:2 * me + 2)))
        two = 0
        call gyre_iscatter(recv=two, root=root, comm=world, request=request)
        call gyre_wait(request)
        call gyre_gatherv(own, root=root, comm=world)
        call gyre_igatherv(own, root=root, comm=world, request=request)
        call gyre_wait(request)
        own = 0
        call gyre_scatterv(recv=own, root=root, comm=world)
        call check('scatterv elsewhere', all_same(own, [(100 * me + k, k=1, me + 1)]))
        own = 0
        call gyre_iscatterv(recv=own, root=root, comm=world, request=request)
        call gyre_wait(request)
      end if
      call check('iscatter', all_same(two, everything(2 * me + 1:2 * me + 2)))
      call check('scatterv', all_same(own, [(100 * me + k, k=1, me + 1)]))
    end do
    to = [(100 * me + k, k=1, n)]
    expected = [(100 * r + me + 1, r=0, n - 1)]
    ones = 1
    ranks = [(r, r=0, n - 1)]
    call gyre_all_to_all(to, from, world)
    call check('all_to_all', all_same(from, expected))
    from = to
    call gyre_iall_to_all(recv=from, comm=world, request=request)
    call gyre_wait(request)
    call check('iall_to_all', all_same(from, expected))
    from = 0
    call gyre_all_to_allv(to, ones, from, ones, world)
    call check('all_to_allv', all_same(from, expected))
    from = 0
    call gyre_iall_to_allv(to, ones, from, ones, world, ranks, ranks, request)
    call gyre_wait(request)
    call check('iall_to_allv', all_same(from, expected))
    from = 0
    call gyre_neighbor_exchange(to, ones, ranks, from, ones, ranks, world)
    call check('neighbor_exchange', all_same(from, expected))
    from = 0
    call gyre_ineighbor_exchange(to, ones, ranks, from, ones, ranks, world, request)
    call gyre_wait(request, status)
    call check('ineighbor_exchange', all_same(from, expected) .and. status == GYRE_OK)
  end subroutine

  logical function all_same(a, b)
    integer, intent(in) :: a(:), b(:)
    all_same = size(a) == size(b)
    if (all_same) all_same = all(a == b)
  end function

  subroutine messages()
    integer, asynchronous :: out, in
    type(gyre_request) :: requests(2)
    integer :: next, before
    next = mod(me + 1, n)
    before = mod(me + n - 1, n)
    out = me
    in = -1
    call gyre_group_start()
    call gyre_send(out, next, world)
    call gyre_recv(in, before, world)
    call gyre_group_end()
    call check('send and recv', in == before)
    in = -1
    call gyre_irecv(in, before, world, requests(1))
    call gyre_isend(out, next, world, requests(2))
    call gyre_wait_all(2, requests)
    call check('isend and irecv', in == before)
    call gyre_barrier(world)
    call gyre_ibarrier(world, requests(1))
    call gyre_wait(requests(1))
  end subroutine

  subroutine communicators()
    type(gyre_comm) :: c
    type(gyre_exact) :: sum
    type(c_ptr) :: memory, part
    integer, pointer :: mine(:)
    real(real64) :: value
    call gyre_comm_dup(world, c)
    call check('dup', gyre_comm_made(c) .and. gyre_comm_size(c) == n .and. gyre_comm_rank(c) == me)
    call gyre_comm_set(c, order=GYRE_ORDER_EXACT, algorithm='all_reduce:direct', tag=7_int64)
    value = merge(1e300_real64, 1.0_real64, me == 0)
    call gyre_all_reduce(recv=value, op=GYRE_SUM, comm=c)
    call check('exact order', value >= 1e300_real64)
    call gyre_comm_destroy(c)
    call check('destroy', .not. gyre_comm_made(c))
    call gyre_comm_split(world, mod(me, 2), -me, c)
    call check('split', gyre_comm_size(c) == (n + 1 - mod(me, 2)) / 2)
    call gyre_comm_destroy(c)
    call gyre_comm_split(world, -1, 0, c)
    call check('no color', .not. gyre_comm_made(c))
    call gyre_comm_split_type(world, GYRE_SPLIT_HOST, 0, c)
    call check('host', gyre_comm_local_size(c) == n .and. gyre_comm_local_rank(c) == me)
    call check('hosts', gyre_comm_hosts(c) == 1)
    call gyre_comm_destroy(c)
    call gyre_comm_create_group(world, [me], me, c)
    call check('group', gyre_comm_size(c) == 1)
    call gyre_comm_destroy(c)
    call gyre_exact_create(sum)
    call gyre_exact_add(sum, [1e100_real64, 1.0_real64, -1e100_real64])
    call gyre_exact_add_dot(sum, [2.0_real64], [3.0_real64])
    call gyre_exact_all_reduce(sum, world)
    call gyre_exact_value(sum, value)
    call check('exact sum', all_are([value], 7 * n))
    call gyre_exact_destroy(sum)
    call gyre_mem_alloc(8000_int64, memory)
    call gyre_mem_free(memory)
    call gyre_mem_alloc_shared(world, 400_int64, memory)
    call c_f_pointer(memory, mine, [100])
    mine(1) = me
    call gyre_barrier(world)
    call gyre_mem_peer(memory, mod(me + 1, n), part)
    call c_f_pointer(part, mine, [100])
    call check('shared memory', mine(1) == mod(me + 1, n))
    call gyre_mem_free(memory)
  end subroutine

  subroutine own()
    complex(real64) :: x(70), all(70), want
    integer(c_int), target :: calls
    integer :: r, status
    type(gyre_op) :: op
    type(gyre_comm) :: c
    logical :: l
    calls = 0
    call gyre_op_create(after, op, user=c_loc(calls))
    x = cmplx(me + 2, me + 1, real64)
    want = (2, 1)
    do r = 1, n - 1
      want = cmplx((r + 2) * real(want), (r + 2) * aimag(want) + r + 1, real64)
    end do
    call gyre_all_reduce(x, all, op, world)
    call check('an operation of its own', abs(all(1) - want) < 1e-9 .and. abs(all(70) - want) < 1e-9)
    call check('its user', n == 1 .or. calls > 0)
    call gyre_scan(recv=x, op=op, comm=world)
    call check('scan', me < n - 1 .or. abs(x(2) - want) < 1e-9)
    call gyre_op_free(op)
    call gyre_all_reduce(x, all, op, world, status)
    call check('a freed operation', status == GYRE_ERR_TYPE .or. status == GYRE_ERR_INVALID)
    call gyre_op_create(fails, op, commutative=.true.)
    call gyre_comm_dup(world, c)
    l = .true.
    call gyre_all_reduce(recv=l, op=op, comm=c, status=status)
    call check('an operation that fails', status == merge(GYRE_OK, GYRE_ERR_ABORTED, n == 1))
    call gyre_comm_destroy(c)
    call gyre_op_free(op)
  end subroutine

  ! Rank r has r + 1 leaves of ones.
  subroutine leaves()
    real(real64) :: ones(2 * n, me + 1), some(2 * n), two(2)
    integer :: total, status, i
    type(gyre_comm) :: c, again, copy
    total = n * (n + 1) / 2
    ones = 1
    call gyre_comm_dup(world, c)
    copy = c
    call gyre_comm_set(c, leaves=me + 1)
    call gyre_all_reduce(ones, some, GYRE_SUM, copy)
    call check('leaves: a copy of the variable', all_are(some, total))
    call gyre_all_reduce(ones, some, GYRE_SUM, c)
    call check('leaves: all_reduce', all_are(some, total))
    call gyre_reduce_scatter(ones, two, GYRE_SUM, c)
    call check('leaves: reduce_scatter', all_are(two, total))
    two = 0
    call gyre_reduce_scatterv(ones, two, [(2, i=1, n)], GYRE_SUM, c)
    call check('leaves: reduce_scatterv', all_are(two, total))
    if (me == 0) then
      call gyre_reduce(ones, some, GYRE_SUM, 0, c)
      call check('leaves: reduce', all_are(some, total))
    else
      call gyre_reduce(ones, op=GYRE_SUM, root=0, comm=c)
      call gyre_all_reduce(recv=some, op=GYRE_SUM, comm=c, status=status)
      call refused(status, GYRE_ERR_INVALID, 'gyre_all_reduce: send is absent: with leaves')
      call gyre_all_reduce(some, some, GYRE_SUM, c, status)
      call refused(status, GYRE_ERR_INVALID, 'gyre_all_reduce: send has')
    end if
    again = c
    call gyre_comm_dup(world, again)
    some = 1
    call gyre_all_reduce(recv=some, op=GYRE_SUM, comm=again)
    call check('leaves: another communicator in the variable', all_are(some, n))
    call gyre_comm_destroy(again)
    call gyre_comm_set(c, chunk=-1_int64, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_comm_set: chunk is -1')
    call gyre_comm_set(c, leaves=-1, status=status)
    call check('no leaves', status == GYRE_ERR_INVALID)
    call gyre_comm_set(c)
    call gyre_all_reduce(recv=some, op=GYRE_SUM, comm=copy)
    call gyre_comm_destroy(c)
  end subroutine

  ! Starts the plan twice, which must give `want` in `got` each time, and frees it.
  subroutine gives(what, plan, got, want)
    character(len=*), intent(in) :: what
    type(gyre_plan), intent(inout) :: plan
    integer, intent(inout), asynchronous :: got(:)
    integer, intent(in) :: want(:)
    type(gyre_request) :: request
    got = -1
    call gyre_start(plan)
    call check('plan of ' // what, all_same(got, want))
    got = -1
    call gyre_start(plan, request)
    call gyre_wait(request)
    call check('request of a plan of ' // what, all_same(got, want))
    call gyre_plan_free(plan)
  end subroutine

  subroutine plans()
    integer, asynchronous :: one(1), wide(n), got1(1), got(n)
    integer :: want(n), want1(1), ones(n), i, status, root
    real(real64), asynchronous :: x
    type(gyre_plan) :: plan
    type(gyre_request) :: request
    one = me + 1
    wide = [(10 * me + i, i=1, n)]
    ones = 1
    call gyre_all_reduce(wide, want, GYRE_SUM, world)
    call gyre_plan_all_reduce(wide, got, GYRE_SUM, world, plan)
    call gives('all_reduce', plan, got, want)
    call gyre_scan(wide, want, GYRE_SUM, world)
    call gyre_plan_scan(wide, got, GYRE_SUM, world, plan)
    call gives('scan', plan, got, want)
    want = -1
    call gyre_exscan(wide, want, GYRE_SUM, world)
    call gyre_plan_exscan(wide, got, GYRE_SUM, world, plan)
    call gives('exscan', plan, got, want)
    call gyre_reduce_scatter(wide, want1, GYRE_SUM, world)
    call gyre_plan_reduce_scatter(wide, got1, GYRE_SUM, world, plan)
    call gives('reduce_scatter', plan, got1, want1)
    call gyre_plan_reduce_scatterv(wide, got1, ones, GYRE_SUM, world, plan)
    call gives('reduce_scatterv', plan, got1, want1)
    want = -1
    if (me == 0) call gyre_reduce(wide, want, GYRE_SUM, 0, world)
    if (me /= 0) call gyre_reduce(wide, op=GYRE_SUM, root=0, comm=world)
    call gyre_plan_reduce(wide, got, GYRE_SUM, 0, world, plan)
    call gives('reduce', plan, got, want)
    call gyre_all_gather(one, want, world)
    call gyre_plan_all_gather(one, got, world, plan)
    call gives('all_gather', plan, got, want)
    call gyre_plan_all_gatherv(one, got, ones, world, plan=plan)
    call gives('all_gatherv', plan, got, want)
    if (me /= 0) want = -1
    call gyre_plan_gather(one, got, 0, world, plan)
    call gives('gather', plan, got, want)
    call gyre_plan_gatherv(one, got, ones, 0, world, plan=plan)
    call gives('gatherv', plan, got, want)
    want1 = 1 + me
    call gyre_plan_scatter(wide, got1, 0, world, plan)
    call gives('scatter', plan, got1, want1)
    call gyre_plan_scatterv(wide, ones, got1, 0, world, plan=plan)
    call gives('scatterv', plan, got1, want1)
    call gyre_all_to_all(wide, want, world)
    call gyre_plan_all_to_all(wide, got, world, plan)
    call gives('all_to_all', plan, got, want)
    call gyre_plan_all_to_allv(wide, ones, got, ones, world, plan=plan)
    call gives('all_to_allv', plan, got, want)
    want1 = mod(me + n - 1, n) + 1
    call gyre_plan_neighbor_exchange(one, [1], [mod(me + 1, n)], got1, [1], [mod(me + n - 1, n)], world, plan)
    call gives('neighbor_exchange', plan, got1, want1)
    call gyre_plan_barrier(world, plan)
    call gyre_start(plan)
    call gyre_plan_free(plan)
    root = me
    call gyre_plan_broadcast(root, n - 1, world, plan)
    call gyre_start(plan)
    call gyre_plan_free(plan)
    call check('plan of broadcast', root == n - 1)
    x = 1
    call gyre_plan_all_reduce(recv=x, op=GYRE_SUM, comm=world, plan=plan)
    call gyre_plan_set(plan, chunk=-1_int64, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_plan_set: chunk is -1')
    call gyre_plan_set(plan, order=GYRE_ORDER_EXACT, tag=3_int64)
    call gyre_start(plan, request)
    call gyre_start(plan, status=status)
    call refused(status, GYRE_ERR_INVALID, 'under way')
    call gyre_plan_free(plan, status)
    call refused(status, GYRE_ERR_INVALID, 'under way')
    call gyre_wait(request)
    call check('a plan in place', abs(x - n) < 1e-9)
    call gyre_plan_free(plan)
    call gyre_start(plan, status=status)
    call check('a freed plan', status == GYRE_ERR_INVALID)
    call gyre_plan_all_gather(one, got(:0), world, plan, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_plan_all_gather: recv has 0 elements')
  end subroutine

  subroutine buckets()
    type(gyre_buckets) :: b
    type(gyre_bucket) :: bucket
    type(c_ptr) :: ptr
    real(c_double), target :: total
    real(c_double), pointer :: tensor(:)
    real(real64) :: whole, exposed
    integer :: i, status, counts(3)
    counts = [3, 5, 7]
    total = 0
    call gyre_buckets_create(world, counts, total, GYRE_MAX, b, GYRE_BUCKET_REDUCE_SCATTER, 8_int64, landed, &
        user=c_loc(total))
    do i = 2, 0, -1
      call gyre_buckets_tensor(b, i, ptr)
      call c_f_pointer(ptr, tensor, [counts(i + 1)])
      tensor = me + 1
      call gyre_buckets_ready(b, i)
      call gyre_buckets_progress(b)
    end do
    call gyre_buckets_ready(b, 0, status)
    call check('ready twice', status == GYRE_ERR_INVALID)
    call gyre_buckets_wait(b)
    call gyre_all_reduce(recv=total, op=GYRE_SUM, comm=world)
    call check('buckets', abs(total - 15 * n) < 1e-9 .and. gyre_buckets_count(b) == 3)
    call gyre_buckets_times(b, whole, exposed)
    call gyre_buckets_get(b, 1, bucket)
    call check('a bucket', whole >= 0 .and. bucket%index == 1 .and. bucket%first_tensor == 1)
    call gyre_buckets_tensor(b, 3, ptr, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_buckets_tensor: there is no tensor 3')
    call gyre_buckets_destroy(b)
    call gyre_buckets_create(world, [1, -1], total, GYRE_MAX, b, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_buckets_create: counts(2) is -1')
    call gyre_buckets_create(world, [1], 'text', GYRE_MAX, b, status=status)
    call refused(status, GYRE_ERR_TYPE, 'gyre_buckets_create: mold has a type')
  end subroutine

  ! The call must have refused its arguments with `want`, and a text that has `part`.
  subroutine refused(status, want, part)
    integer, intent(in) :: status, want
    character(len=*), intent(in) :: part
    character(len=:), allocatable :: has
    has = gyre_last_error()
    call check(part // ' is not in: ' // has, status == want .and. index(has, part) > 0)
  end subroutine

  subroutine errors()
    real(real64), asynchronous :: a(4, 4), b(16), w(2 * n)
    real(real64), allocatable :: never(:), none_here(:)
    character(len=4) :: text
    logical :: l
    integer, allocatable :: gone(:)
    integer :: status, i, counts(n)
    type(gyre_comm) :: none
    type(gyre_buckets) :: buckets
    type(gyre_request) :: request
    a = 0
    b = 0
    w = 0
    counts = 1
    text = 'text'
    call gyre_all_reduce(recv=a(1, :), op=GYRE_SUM, comm=world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_all_reduce: recv is not contiguous')
    call gyre_iall_reduce(b(1:8:2), b(9:12), GYRE_SUM, world, request, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_iall_reduce: send is not contiguous')
    call gyre_iall_reduce(a(1:2, 1:2), b(9:12), GYRE_SUM, world, request, status)
    call refused(status, GYRE_ERR_INVALID, 'send is not contiguous')
    call gyre_all_reduce(b(1:3), b(4:7), GYRE_SUM, world, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_all_reduce: send has 3 elements, it must have 4')
    call gyre_all_reduce([1, 2], b(1:2), GYRE_SUM, world, status)
    call refused(status, GYRE_ERR_TYPE, 'send is int32, the other buffer is double')
    call gyre_broadcast(text, 0, world, status)
    call refused(status, GYRE_ERR_TYPE, 'gyre_broadcast: buffer has a type')
    call gyre_broadcast(never, 0, none, status)
    call refused(status, GYRE_ERR_INVALID, 'the communicator has not been made')
    call gyre_all_reduce(recv=l, op=GYRE_SUM, comm=world, status=status)
    call refused(status, GYRE_ERR_TYPE, 'recv is logical')
    call gyre_all_reduce(recv=b, op=GYRE_BAND, comm=world, status=status)
    call check('band', status == GYRE_ERR_TYPE .and. len(gyre_last_error()) > 0)
    call assumed_size(b)
    i = 10
    allocate (none_here(i:1), source=b(i:1))
    call gyre_all_reduce(none_here, none_here, GYRE_SUM, world, status)
    call check('an empty array with bounds 10:1', status == GYRE_OK)
    call gyre_all_gather(b(i:1), none_here, world, status)
    call check('empty sections', status == GYRE_OK)
    call gyre_all_reduce(b(1:4), none_here, GYRE_SUM, world, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_all_reduce: send has 4 elements, it must have 0')
    deallocate (none_here)
    call gyre_all_reduce(b(1:4), none_here, GYRE_SUM, world, status)
    call refused(status, GYRE_ERR_INVALID, 'not allocated')
    call gyre_all_gather(b(1:2), b, world, status)
    if (n /= 8) call refused(status, GYRE_ERR_INVALID, 'gyre_all_gather: recv has 16 elements')
    call gyre_all_gatherv(b(1:1), w, [(1000, i=1, n)], world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_all_gatherv: block 0 (1000 elements at 0) does')
    call gyre_all_gatherv(b(1:1), w, [counts, 1], world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'counts has')
    call gyre_all_gatherv(b(1:1), w, -counts, world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'counts(1) is -1')
    allocate (gone(n))
    deallocate (gone) ! gfortran leaves its shape in the descriptor
    call gyre_all_gatherv(b(1:1), w, gone, world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_all_gatherv: counts is not allocated or not associated')
    call gyre_buckets_create(world, gone, 0.0, GYRE_SUM, buckets, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_buckets_create: counts is not allocated')
    call gyre_comm_create_group(world, gone, 1, none, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_comm_create_group: ranks is not allocated')
    call gyre_all_gatherv(b(1:1), w, b(1:n), world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'counts must be an array of integers')
    call gyre_gather(root=me, comm=world, send=b, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_gather: recv is absent')
    call gyre_scatter(root=me, comm=world, recv=b, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_scatter: send is absent')
    call gyre_reduce(op=GYRE_SUM, root=me, comm=world, status=status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_reduce: send is absent')
    call gyre_broadcast(b, 99, world, status)
    call check('root 99', status == GYRE_ERR_INVALID .and. index(gyre_last_error(), '99') > 0)
    call gyre_comm_dup(world, none)
    call gyre_comm_abort(none, 'as the test wants')
    call gyre_barrier(none, status)
    call check('abort', status == GYRE_ERR_ABORTED .and. index(gyre_last_error(), 'as the test wants') > 0)
    call check('comm_error', gyre_comm_error(none) == GYRE_ERR_ABORTED)
    call check('status_string', len(gyre_status_string(GYRE_ERR_ABORTED)) > 3)
    call gyre_comm_destroy(none)
  end subroutine

  subroutine assumed_size(x)
    real(real64), intent(inout) :: x(*)
    integer :: status
    call gyre_broadcast(x(1:2), 0, world, status)
    call check('a section of an assumed-size array', status == GYRE_OK)
    call gyre_broadcast(x, 0, world, status)
    call refused(status, GYRE_ERR_INVALID, 'gyre_broadcast: buffer has no size')
  end subroutine

end program
