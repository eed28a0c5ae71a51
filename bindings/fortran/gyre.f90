! SPDX-License-Identifier: Apache-2.0
! bindings/fortran/gyre.f90: module gyre, Gyre for Fortran 2018. The collectives are C functions of calls.c,
! which read the type and the shape of the actual argument from its descriptor. docs/fortran.md has examples.
!
! send absent: in place. Buffers must be contiguous. A non-blocking call (gyre_i...) keeps its buffers until
! gyre_wait or gyre_test has ended the request: variables of the caller with the attribute ASYNCHRONOUS. Its
! send is intent(inout), so that the compiler refuses expressions, which would need a temporary. status
! absent: an error stops the program with Gyre's text.
module gyre
  use, intrinsic :: iso_c_binding, only: c_int, c_int64_t, c_double, c_ptr, c_null_ptr, c_char, &
      c_null_char, c_bool, c_f_pointer, c_size_t, c_associated, c_funptr, c_funloc
  implicit none
  private :: c_int, c_int64_t, c_double, c_ptr, c_null_ptr, c_char, c_null_char, c_bool, &
      c_f_pointer, c_size_t, c_associated, c_funptr, c_funloc, set, set_plan, create_op, &
      abort_by, number, text_of, length_of, words, status_words, test

  type, bind(c) :: gyre_comm
    private
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c) :: gyre_plan
    private
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c) :: gyre_buckets
    private
    type(c_ptr) :: handle = c_null_ptr
  end type
  ! gyre_bucket_t: all counts are in elements; data is for c_f_pointer.
  type, bind(c) :: gyre_bucket
    integer(c_size_t) :: index
    type(c_ptr) :: data
    integer(c_size_t) :: count, first_tensor, tensors, shard_offset, shard_count
  end type
  type, bind(c) :: gyre_request
    private
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c) :: gyre_exact
    private
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c) :: gyre_op
    private
    integer(c_int) :: kind = 0, scaled = 0
    real(c_double) :: scale = 1
  end type

  type(gyre_op), parameter :: GYRE_SUM = gyre_op(0), GYRE_PROD = gyre_op(1), GYRE_MIN = gyre_op(2), &
      GYRE_MAX = gyre_op(3), GYRE_AVG = gyre_op(4), GYRE_BAND = gyre_op(5), GYRE_BOR = gyre_op(6), &
      GYRE_BXOR = gyre_op(7), GYRE_LAND = gyre_op(8), GYRE_LOR = gyre_op(9), GYRE_LXOR = gyre_op(10)
  integer(c_int), parameter :: GYRE_OK = 0, GYRE_ERR_INVALID = 100, GYRE_ERR_TYPE = 101, &
      GYRE_ERR_OVERFLOW = 102, GYRE_ERR_OVERLAP = 103, GYRE_ERR_UNSUPPORTED = 104, GYRE_ERR_NO_MEMORY = 105, &
      GYRE_ERR_NOT_FOUND = 106, GYRE_ERR_IO = 107, GYRE_ERR_FORMAT = 108, &
      GYRE_ERR_MISMATCH = 200, GYRE_ERR_PEER_DEAD = 201, &
      GYRE_ERR_TIMEOUT = 202, GYRE_ERR_ABORTED = 203, GYRE_ERR_TRANSPORT = 204, GYRE_ERR_SYSTEM = 300, &
      GYRE_ERR_AUTH = 301, GYRE_ERR_BOOTSTRAP = 302, GYRE_ERR_INTERNAL = 303
  integer(c_int), parameter :: GYRE_ORDER_DEFAULT = 0, GYRE_ORDER_CANONICAL = 1, GYRE_ORDER_FAST = 2, &
      GYRE_ORDER_EXACT = 3
  integer(c_int), parameter :: GYRE_BUCKET_ALL_REDUCE = 0, GYRE_BUCKET_REDUCE_SCATTER = 1
  integer(c_int), parameter :: GYRE_SPLIT_HOST = 0, GYRE_SPLIT_NUMA = 1, GYRE_SPLIT_DEVICE = 2

  ! The collectives and messages, as gyre/collectives.h has them: sizes and types come from the arrays.
  interface
    subroutine gyre_all_reduce(send, recv, op, comm, status) bind(c, name='gyre_f_all_reduce')
      import :: gyre_comm, c_int, gyre_op
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iall_reduce(send, recv, op, comm, request, status) bind(c, name='gyre_f_iall_reduce')
      import :: gyre_comm, c_int, gyre_op, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_reduce_scatter(send, recv, op, comm, status) bind(c, name='gyre_f_reduce_scatter')
      import :: gyre_comm, c_int, gyre_op
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_ireduce_scatter(send, recv, op, comm, request, status) &
        bind(c, name='gyre_f_ireduce_scatter')
      import :: gyre_comm, c_int, gyre_op, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_reduce_scatterv(send, recv, counts, op, comm, status) &
        bind(c, name='gyre_f_reduce_scatterv')
      import :: gyre_comm, c_int, gyre_op
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(*), dimension(..), intent(in) :: counts
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_ireduce_scatterv(send, recv, counts, op, comm, request, status) &
        bind(c, name='gyre_f_ireduce_scatterv')
      import :: gyre_comm, c_int, gyre_op, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: counts
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_all_gather(send, recv, comm, status) bind(c, name='gyre_f_all_gather')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iall_gather(send, recv, comm, request, status) bind(c, name='gyre_f_iall_gather')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_all_gatherv(send, recv, counts, comm, displs, status) &
        bind(c, name='gyre_f_all_gatherv')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(*), dimension(..), intent(in) :: counts
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iall_gatherv(send, recv, counts, comm, displs, request, status) &
        bind(c, name='gyre_f_iall_gatherv')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: counts
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_broadcast(buffer, root, comm, status) bind(c, name='gyre_f_broadcast')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(inout) :: buffer
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_ibroadcast(buffer, root, comm, request, status) bind(c, name='gyre_f_ibroadcast')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), asynchronous :: buffer
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_reduce(send, recv, op, root, comm, status) bind(c, name='gyre_f_reduce')
      import :: gyre_comm, c_int, gyre_op
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout), optional :: recv
      type(gyre_op), intent(in) :: op
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_ireduce(send, recv, op, root, comm, request, status) bind(c, name='gyre_f_ireduce')
      import :: gyre_comm, c_int, gyre_op, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      type(gyre_op), intent(in) :: op
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_scan(send, recv, op, comm, status) bind(c, name='gyre_f_scan')
      import :: gyre_comm, c_int, gyre_op
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iscan(send, recv, op, comm, request, status) bind(c, name='gyre_f_iscan')
      import :: gyre_comm, c_int, gyre_op, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_exscan(send, recv, op, comm, status) bind(c, name='gyre_f_exscan')
      import :: gyre_comm, c_int, gyre_op
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iexscan(send, recv, op, comm, request, status) bind(c, name='gyre_f_iexscan')
      import :: gyre_comm, c_int, gyre_op, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_gather(send, recv, root, comm, status) bind(c, name='gyre_f_gather')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout), optional :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_igather(send, recv, root, comm, request, status) bind(c, name='gyre_f_igather')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_gatherv(send, recv, counts, root, comm, displs, status) bind(c, name='gyre_f_gatherv')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout), optional :: recv
      type(*), dimension(..), intent(in), optional :: counts
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_igatherv(send, recv, counts, root, comm, displs, request, status) &
        bind(c, name='gyre_f_igatherv')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      type(*), dimension(..), intent(in), optional :: counts
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_scatter(send, recv, root, comm, status) bind(c, name='gyre_f_scatter')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout), optional :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iscatter(send, recv, root, comm, request, status) bind(c, name='gyre_f_iscatter')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_scatterv(send, counts, recv, root, comm, displs, status) &
        bind(c, name='gyre_f_scatterv')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(in), optional :: counts
      type(*), dimension(..), intent(inout), optional :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iscatterv(send, counts, recv, root, comm, displs, request, status) &
        bind(c, name='gyre_f_iscatterv')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(in), optional :: counts
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_all_to_all(send, recv, comm, status) bind(c, name='gyre_f_all_to_all')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in), optional :: send
      type(*), dimension(..), intent(inout) :: recv
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iall_to_all(send, recv, comm, request, status) bind(c, name='gyre_f_iall_to_all')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_all_to_allv(send, send_counts, recv, recv_counts, comm, &
        send_displs, recv_displs, status) &
        bind(c, name='gyre_f_all_to_allv')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in) :: send
      type(*), dimension(..), intent(in) :: send_counts
      type(*), dimension(..), intent(inout) :: recv
      type(*), dimension(..), intent(in) :: recv_counts
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: send_displs
      type(*), dimension(..), intent(in), optional :: recv_displs
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_iall_to_allv(send, send_counts, recv, recv_counts, comm, &
        send_displs, recv_displs, request, status) &
        bind(c, name='gyre_f_iall_to_allv')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), asynchronous :: send
      type(*), dimension(..), intent(in) :: send_counts
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: recv_counts
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: send_displs
      type(*), dimension(..), intent(in), optional :: recv_displs
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_barrier(comm, status) bind(c, name='gyre_f_barrier')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_ibarrier(comm, request, status) bind(c, name='gyre_f_ibarrier')
      import :: gyre_comm, c_int, gyre_request
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_send(buffer, peer, comm, status) bind(c, name='gyre_f_send')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in) :: buffer
      integer(c_int), intent(in) :: peer
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_isend(buffer, peer, comm, request, status) bind(c, name='gyre_f_isend')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), asynchronous :: buffer
      integer(c_int), intent(in) :: peer
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_recv(buffer, peer, comm, status) bind(c, name='gyre_f_recv')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(inout) :: buffer
      integer(c_int), intent(in) :: peer
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_irecv(buffer, peer, comm, request, status) bind(c, name='gyre_f_irecv')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), asynchronous :: buffer
      integer(c_int), intent(in) :: peer
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_neighbor_exchange(send, send_counts, to, recv, recv_counts, from, comm, status) &
        bind(c, name='gyre_f_neighbor_exchange')
      import :: gyre_comm, c_int
      type(*), dimension(..), intent(in) :: send
      type(*), dimension(..), intent(in) :: send_counts
      type(*), dimension(..), intent(in) :: to
      type(*), dimension(..), intent(inout) :: recv
      type(*), dimension(..), intent(in) :: recv_counts
      type(*), dimension(..), intent(in) :: from
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_ineighbor_exchange(send, send_counts, to, recv, &
        recv_counts, from, comm, request, status) &
        bind(c, name='gyre_f_ineighbor_exchange')
      import :: gyre_comm, c_int, gyre_request
      type(*), dimension(..), intent(inout), asynchronous :: send
      type(*), dimension(..), intent(in) :: send_counts
      type(*), dimension(..), intent(in) :: to
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: recv_counts
      type(*), dimension(..), intent(in) :: from
      type(gyre_comm), intent(in) :: comm
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
  end interface

  ! Plans (gyre/plan.h): the buffers must stay where they are until gyre_plan_free.
  interface
    subroutine gyre_plan_all_reduce(send, recv, op, comm, plan, status) &
        bind(c, name='gyre_f_plan_all_reduce')
      import :: gyre_comm, c_int, gyre_op, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_reduce_scatter(send, recv, op, comm, plan, status) &
        bind(c, name='gyre_f_plan_reduce_scatter')
      import :: gyre_comm, c_int, gyre_op, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_reduce_scatterv(send, recv, counts, op, comm, plan, status) &
        bind(c, name='gyre_f_plan_reduce_scatterv')
      import :: gyre_comm, c_int, gyre_op, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: counts
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_all_gather(send, recv, comm, plan, status) &
        bind(c, name='gyre_f_plan_all_gather')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_all_gatherv(send, recv, counts, comm, displs, plan, status) &
        bind(c, name='gyre_f_plan_all_gatherv')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: counts
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_broadcast(buffer, root, comm, plan, status) &
        bind(c, name='gyre_f_plan_broadcast')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), asynchronous :: buffer
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_reduce(send, recv, op, root, comm, plan, status) &
        bind(c, name='gyre_f_plan_reduce')
      import :: gyre_comm, c_int, gyre_op, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      type(gyre_op), intent(in) :: op
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_scan(send, recv, op, comm, plan, status) bind(c, name='gyre_f_plan_scan')
      import :: gyre_comm, c_int, gyre_op, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_exscan(send, recv, op, comm, plan, status) bind(c, name='gyre_f_plan_exscan')
      import :: gyre_comm, c_int, gyre_op, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_op), intent(in) :: op
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_gather(send, recv, root, comm, plan, status) bind(c, name='gyre_f_plan_gather')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_gatherv(send, recv, counts, root, comm, displs, plan, status) &
        bind(c, name='gyre_f_plan_gatherv')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      type(*), dimension(..), intent(in), optional :: counts
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_scatter(send, recv, root, comm, plan, status) &
        bind(c, name='gyre_f_plan_scatter')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_scatterv(send, counts, recv, root, comm, displs, plan, status) &
        bind(c, name='gyre_f_plan_scatterv')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(in), optional :: counts
      type(*), dimension(..), intent(inout), optional, asynchronous :: recv
      integer(c_int), intent(in) :: root
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: displs
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_all_to_all(send, recv, comm, plan, status) &
        bind(c, name='gyre_f_plan_all_to_all')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), optional, asynchronous :: send
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_all_to_allv(send, send_counts, recv, recv_counts, comm, &
        send_displs, recv_displs, plan, status) &
        bind(c, name='gyre_f_plan_all_to_allv')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), asynchronous :: send
      type(*), dimension(..), intent(in) :: send_counts
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: recv_counts
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in), optional :: send_displs
      type(*), dimension(..), intent(in), optional :: recv_displs
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_barrier(comm, plan, status) bind(c, name='gyre_f_plan_barrier')
      import :: gyre_comm, c_int, gyre_plan
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_neighbor_exchange(send, send_counts, to, recv, &
        recv_counts, from, comm, plan, status) &
        bind(c, name='gyre_f_plan_neighbor_exchange')
      import :: gyre_comm, c_int, gyre_plan
      type(*), dimension(..), intent(inout), asynchronous :: send
      type(*), dimension(..), intent(in) :: send_counts
      type(*), dimension(..), intent(in) :: to
      type(*), dimension(..), intent(inout), asynchronous :: recv
      type(*), dimension(..), intent(in) :: recv_counts
      type(*), dimension(..), intent(in) :: from
      type(gyre_comm), intent(in) :: comm
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_start(plan, request, status) bind(c, name='gyre_f_start')
      import :: gyre_plan, gyre_request, c_int
      type(gyre_plan), intent(in) :: plan
      type(gyre_request), intent(inout), optional :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_plan_free(plan, status) bind(c, name='gyre_f_plan_free')
      import :: gyre_plan, c_int
      type(gyre_plan), intent(inout) :: plan
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine set_plan(plan, order, algorithm, chunk, tag, status) bind(c, name='gyre_f_plan_set')
      import :: gyre_plan, c_int, c_int64_t, c_char
      type(gyre_plan), intent(in) :: plan
      integer(c_int), intent(in), optional :: order
      character(kind=c_char), intent(in) :: algorithm(*)
      integer(c_int64_t), intent(in), optional :: chunk, tag
      integer(c_int), intent(out), optional :: status
    end subroutine
  end interface

  ! Operations of the program's own, and buckets (gyre/bucket.h), whose numbers count from 0.
  abstract interface
    ! right(i) = left(i) op right(i) for count elements at these addresses, for c_f_pointer. GYRE_OK, or an
    ! error.
    integer(c_int) function gyre_op_function(left, right, count, type, user) bind(c)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: left, right, user
      integer(c_size_t), value :: count
      integer(c_int), value :: type
    end function
    subroutine gyre_bucket_landed(bucket, user) bind(c)
      import :: gyre_bucket, c_ptr
      type(gyre_bucket), intent(in) :: bucket
      type(c_ptr), value :: user
    end subroutine
  end interface
  interface
    subroutine create_op(function, commutative, user, op, status) bind(c, name='gyre_f_op_create')
      import :: gyre_op, c_int, c_funptr, c_ptr
      type(c_funptr), value :: function
      integer(c_int), intent(in) :: commutative
      type(c_ptr), value :: user
      type(gyre_op), intent(inout) :: op
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_op_free(op, status) bind(c, name='gyre_f_op_free')
      import :: gyre_op, c_int
      type(gyre_op), intent(inout) :: op
      integer(c_int), intent(out), optional :: status
    end subroutine
    ! counts: elements of each tensor, in order of readiness; mold: a value of the type. landed is called for
    ! each bucket, on the thread that makes progress, and must not call Gyre.
    subroutine gyre_buckets_create(comm, counts, mold, op, buckets, mode, bucket_bytes, landed, user, &
        status) &
        bind(c, name='gyre_f_buckets_create')
      import :: gyre_comm, gyre_op, gyre_buckets, gyre_bucket_landed, c_int, c_int64_t, c_ptr
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in) :: counts, mold
      type(gyre_op), intent(in) :: op
      type(gyre_buckets), intent(inout) :: buckets
      integer(c_int), intent(in), optional :: mode
      integer(c_int64_t), intent(in), optional :: bucket_bytes
      procedure(gyre_bucket_landed), optional :: landed
      type(c_ptr), intent(in), optional :: user
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_buckets_destroy(buckets, status) bind(c, name='gyre_f_buckets_destroy')
      import :: gyre_buckets, c_int
      type(gyre_buckets), intent(inout) :: buckets
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_buckets_tensor(buckets, tensor, ptr, status) bind(c, name='gyre_f_buckets_tensor')
      import :: gyre_buckets, c_int, c_ptr
      type(gyre_buckets), intent(in) :: buckets
      integer(c_int), intent(in) :: tensor
      type(c_ptr), intent(inout) :: ptr
      integer(c_int), intent(out), optional :: status
    end subroutine
    integer(c_int) function gyre_buckets_count(buckets) bind(c, name='gyre_f_buckets_count')
      import :: gyre_buckets, c_int
      type(gyre_buckets), intent(in) :: buckets
    end function
    subroutine gyre_buckets_get(buckets, index, bucket, status) bind(c, name='gyre_f_buckets_get')
      import :: gyre_buckets, gyre_bucket, c_int
      type(gyre_buckets), intent(in) :: buckets
      integer(c_int), intent(in) :: index
      type(gyre_bucket), intent(inout) :: bucket
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_buckets_ready(buckets, tensor, status) bind(c, name='gyre_f_buckets_ready')
      import :: gyre_buckets, c_int
      type(gyre_buckets), intent(in) :: buckets
      integer(c_int), intent(in) :: tensor
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_buckets_progress(buckets, status) bind(c, name='gyre_f_buckets_progress')
      import :: gyre_buckets, c_int
      type(gyre_buckets), intent(in) :: buckets
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_buckets_wait(buckets, status) bind(c, name='gyre_f_buckets_wait')
      import :: gyre_buckets, c_int
      type(gyre_buckets), intent(in) :: buckets
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_buckets_times(buckets, total_s, exposed_s, status) bind(c, name='gyre_f_buckets_times')
      import :: gyre_buckets, c_int, c_double
      type(gyre_buckets), intent(in) :: buckets
      real(c_double), intent(out) :: total_s, exposed_s
      integer(c_int), intent(out), optional :: status
    end subroutine
  end interface

  ! Requests, groups, communicators.
  interface
    subroutine gyre_wait(request, status) bind(c, name='gyre_f_wait')
      import :: gyre_request, c_int
      type(gyre_request), intent(inout) :: request
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine test(request, finished, status) bind(c, name='gyre_f_test')
      import :: gyre_request, c_int, c_bool
      type(gyre_request), intent(inout) :: request
      logical(c_bool), intent(out) :: finished
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_wait_all(count, requests, status) bind(c, name='gyre_f_wait_all')
      import :: gyre_request, c_int
      integer(c_int), intent(in) :: count
      type(gyre_request), intent(inout) :: requests(*)
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_group_start(status) bind(c, name='gyre_f_group_start')
      import :: c_int
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_group_end(status) bind(c, name='gyre_f_group_end')
      import :: c_int
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_progress(comm, status) bind(c, name='gyre_f_progress')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_init(comm, timeout_s, status) bind(c, name='gyre_f_init')
      import :: gyre_comm, c_int, c_double
      type(gyre_comm), intent(inout) :: comm
      real(c_double), intent(in), optional :: timeout_s
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_finalize(comm, status) bind(c, name='gyre_f_finalize')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(inout) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_comm_destroy(comm, status) bind(c, name='gyre_f_comm_destroy')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(inout) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_comm_split(comm, color, key, newcomm, status) bind(c, name='gyre_f_comm_split')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(in) :: color, key
      type(gyre_comm), intent(inout) :: newcomm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_comm_split_type(comm, type, key, newcomm, status) &
        bind(c, name='gyre_f_comm_split_type')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(in) :: type, key
      type(gyre_comm), intent(inout) :: newcomm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_comm_dup(comm, newcomm, status) bind(c, name='gyre_f_comm_dup')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      type(gyre_comm), intent(inout) :: newcomm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_comm_create_group(comm, ranks, tag, newcomm, status) &
        bind(c, name='gyre_f_comm_create_group')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      type(*), dimension(..), intent(in) :: ranks
      integer(c_int), intent(in) :: tag
      type(gyre_comm), intent(inout) :: newcomm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_comm_shrink(comm, newcomm, status) bind(c, name='gyre_f_comm_shrink')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      type(gyre_comm), intent(inout) :: newcomm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine abort_by(comm, reason, status) bind(c, name='gyre_f_comm_abort')
      import :: gyre_comm, c_int, c_char
      type(gyre_comm), intent(in) :: comm
      character(kind=c_char), intent(in) :: reason(*)
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine set(comm, order, leaves, algorithm, chunk, timeout_s, tag, status) &
        bind(c, name='gyre_f_comm_set')
      import :: gyre_comm, c_int, c_int64_t, c_double, c_char
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(in), optional :: order, leaves
      character(kind=c_char), intent(in) :: algorithm(*)
      integer(c_int64_t), intent(in), optional :: chunk, tag
      real(c_double), intent(in), optional :: timeout_s
      integer(c_int), intent(out), optional :: status
    end subroutine
    integer(c_int) function number(comm, which) bind(c, name='gyre_f_comm_number')
      import :: gyre_comm, c_int
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(in) :: which
    end function
    type(c_ptr) function words() bind(c, name='gyre_f_last_error')
      import :: c_ptr
    end function
    type(c_ptr) function status_words(status) bind(c, name='gyre_status_string')
      import :: c_ptr, c_int
      integer(c_int), value :: status
    end function
    integer(c_size_t) function length_of(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

  ! Exact sums (gyre/exact.h), and memory, for c_f_pointer.
  interface
    subroutine gyre_exact_create(sum, status) bind(c, name='gyre_f_exact_create')
      import :: gyre_exact, c_int
      type(gyre_exact), intent(inout) :: sum
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_exact_destroy(sum, status) bind(c, name='gyre_f_exact_destroy')
      import :: gyre_exact, c_int
      type(gyre_exact), intent(inout) :: sum
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_exact_add(sum, x, status) bind(c, name='gyre_f_exact_add')
      import :: gyre_exact, c_int
      type(gyre_exact), intent(in) :: sum
      type(*), dimension(..), intent(in) :: x
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_exact_add_dot(sum, x, y, status) bind(c, name='gyre_f_exact_add_dot')
      import :: gyre_exact, c_int
      type(gyre_exact), intent(in) :: sum
      type(*), dimension(..), intent(in) :: x, y
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_exact_all_reduce(sum, comm, status) bind(c, name='gyre_f_exact_all_reduce')
      import :: gyre_exact, gyre_comm, c_int
      type(gyre_exact), intent(in) :: sum
      type(gyre_comm), intent(in) :: comm
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_exact_value(sum, value, status) bind(c, name='gyre_f_exact_value')
      import :: gyre_exact, c_int, c_double
      type(gyre_exact), intent(in) :: sum
      real(c_double), intent(out) :: value
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_mem_alloc(bytes, ptr, status) bind(c, name='gyre_f_mem_alloc')
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), intent(in) :: bytes
      type(c_ptr), intent(inout) :: ptr
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_mem_alloc_shared(comm, bytes, ptr, status) bind(c, name='gyre_f_mem_alloc_shared')
      import :: gyre_comm, c_int, c_int64_t, c_ptr
      type(gyre_comm), intent(in) :: comm
      integer(c_int64_t), intent(in) :: bytes
      type(c_ptr), intent(inout) :: ptr
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_mem_peer(ptr, rank, peer, status) bind(c, name='gyre_f_mem_peer')
      import :: c_int, c_ptr
      type(c_ptr), intent(in) :: ptr
      integer(c_int), intent(in) :: rank
      type(c_ptr), intent(inout) :: peer
      integer(c_int), intent(out), optional :: status
    end subroutine
    subroutine gyre_mem_free(ptr, status) bind(c, name='gyre_f_mem_free')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: ptr
      integer(c_int), intent(out), optional :: status
    end subroutine
  end interface

contains

  type(gyre_op) function gyre_scaled_sum(factor) result(op)
    real(c_double), intent(in) :: factor
    op = gyre_op(0, 1, factor)
  end function

  integer(c_int) function gyre_comm_rank(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_rank = number(comm, 0)
  end function
  integer(c_int) function gyre_comm_size(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_size = number(comm, 1)
  end function
  integer(c_int) function gyre_comm_local_rank(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_local_rank = number(comm, 2)
  end function
  integer(c_int) function gyre_comm_local_size(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_local_size = number(comm, 3)
  end function
  integer(c_int) function gyre_comm_hosts(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_hosts = number(comm, 4)
  end function
  ! The error that killed the communicator, or GYRE_OK.
  integer(c_int) function gyre_comm_error(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_error = number(comm, 5)
  end function
  ! False: never made, ended, or a split with a negative color.
  logical function gyre_comm_made(comm)
    type(gyre_comm), intent(in) :: comm
    gyre_comm_made = c_associated(comm%handle)
  end function

  ! Collective. What is absent gets its default.
  subroutine gyre_comm_set(comm, order, leaves, algorithm, chunk, timeout_s, tag, status)
    type(gyre_comm), intent(in) :: comm
    integer(c_int), intent(in), optional :: order, leaves
    character(len=*), intent(in), optional :: algorithm
    integer(c_int64_t), intent(in), optional :: chunk, tag
    real(c_double), intent(in), optional :: timeout_s
    integer(c_int), intent(out), optional :: status
    if (present(algorithm)) then
      call set(comm, order, leaves, trim(algorithm) // c_null_char, chunk, timeout_s, tag, status)
    else
      call set(comm, order, leaves, c_null_char, chunk, timeout_s, tag, status)
    end if
  end subroutine

  ! The same on all ranks, but for tag. What is absent gets its default.
  subroutine gyre_plan_set(plan, order, algorithm, chunk, tag, status)
    type(gyre_plan), intent(in) :: plan
    integer(c_int), intent(in), optional :: order
    character(len=*), intent(in), optional :: algorithm
    integer(c_int64_t), intent(in), optional :: chunk, tag
    integer(c_int), intent(out), optional :: status
    if (present(algorithm)) then
      call set_plan(plan, order, trim(algorithm) // c_null_char, chunk, tag, status)
    else
      call set_plan(plan, order, c_null_char, chunk, tag, status)
    end if
  end subroutine

  ! op: an operation for all calls that reduce; function runs on any thread (gyre_op_create(3)). commutative
  ! absent: false. user is passed to the function.
  subroutine gyre_op_create(function, op, commutative, user, status)
    procedure(gyre_op_function) :: function
    type(gyre_op), intent(inout) :: op
    logical, intent(in), optional :: commutative
    type(c_ptr), intent(in), optional :: user
    integer(c_int), intent(out), optional :: status
    integer(c_int) :: swaps
    type(c_ptr) :: passed
    swaps = 0
    if (present(commutative)) swaps = merge(1, 0, commutative)
    passed = c_null_ptr
    if (present(user)) passed = user
    call create_op(c_funloc(function), swaps, passed, op, status)
  end subroutine

  subroutine gyre_comm_abort(comm, reason, status)
    type(gyre_comm), intent(in) :: comm
    character(len=*), intent(in) :: reason
    integer(c_int), intent(out), optional :: status
    call abort_by(comm, trim(reason) // c_null_char, status)
  end subroutine

  ! finished: the request has ended; it does not block.
  subroutine gyre_test(request, finished, status)
    type(gyre_request), intent(inout) :: request
    logical, intent(out) :: finished
    integer(c_int), intent(out), optional :: status
    logical(c_bool) :: ended
    call test(request, ended, status)
    finished = ended
  end subroutine

  ! The text of the last error of this thread.
  function gyre_last_error() result(text)
    character(len=:), allocatable :: text
    text = text_of(words())
  end function

  ! The name of a status in words.
  function gyre_status_string(status) result(text)
    integer(c_int), intent(in) :: status
    character(len=:), allocatable :: text
    text = text_of(status_words(status))
  end function

  function text_of(from) result(text)
    type(c_ptr), intent(in) :: from
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i, n
    n = int(length_of(from))
    call c_f_pointer(from, letters, [n])
    allocate (character(len=n) :: text)
    do i = 1, n
      text(i:i) = letters(i)
    end do
  end function

end module

! For calls.c.
subroutine gyre_f_stop(text, length) bind(c, name='gyre_f_stop')
  use, intrinsic :: iso_c_binding, only: c_char, c_int
  implicit none
  integer(c_int), value :: length
  character(kind=c_char), intent(in) :: text(length)
  character(len=length) :: line
  integer :: i
  do i = 1, length
    line(i:i) = text(i)
  end do
  error stop line
end subroutine
