! SPDX-License-Identifier: Apache-2.0
! tests/bindings/mpi_fortran.f90: for mpi.sh: collectives by mpif.h, use mpi and use mpi_f08, in place and with
! MPI_BOTTOM, each compared with what it must be.
subroutine by_include(errors)
  implicit none
  include 'mpif.h'
  integer, intent(inout) :: errors
  integer :: rank, n, ierr, i, request, status(MPI_STATUS_SIZE), comm
  double precision :: x(5), total(5)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  do i = 1, 5
    x(i) = (rank + 1) * i
    total(i) = i * n * (n + 1) / 2
  end do
  call MPI_Allreduce(MPI_IN_PLACE, x, 5, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (ierr /= MPI_SUCCESS .or. any(x /= total)) errors = errors + 1
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  x = [((rank + 1) * i, i=1, 5)]
  call MPI_Iallreduce(MPI_IN_PLACE, x, 5, MPI_DOUBLE_PRECISION, MPI_SUM, comm, request, ierr)
  call MPI_Wait(request, status, ierr)
  if (ierr /= MPI_SUCCESS .or. any(x /= total)) errors = errors + 1
  call MPI_Comm_free(comm, ierr)
end subroutine

subroutine by_module(errors)
  use mpi
  implicit none
  integer, intent(inout) :: errors
  integer :: rank, n, ierr, i, own, half, type, requests(2), comm, pair(2)
  integer, allocatable :: all(:)
  integer, asynchronous, volatile :: number ! MPI_BOTTOM hides who writes it
  logical :: some
  integer(kind=MPI_ADDRESS_KIND) :: where(1)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  allocate (all(n))
  all(rank + 1) = 10 * rank
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  if (any(all /= [(10 * i, i=0, n - 1)])) errors = errors + 1
  own = rank
  call MPI_Reduce(own, half, 1, MPI_INTEGER, MPI_MAX, n - 1, MPI_COMM_WORLD, ierr)
  if (rank == n - 1 .and. half /= n - 1) errors = errors + 1
  some = rank == 0
  call MPI_Allreduce(MPI_IN_PLACE, some, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  if (.not. some) errors = errors + 1
  pair = [mod(rank, 2), rank]
  call MPI_Allreduce(MPI_IN_PLACE, pair, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
  if (any(pair /= merge([1, 1], [0, 0], n > 1))) errors = errors + 1
  number = rank
  call MPI_Get_address(number, where(1), ierr)
  call MPI_Type_create_hindexed(1, [1], where, MPI_INTEGER, type, ierr)
  call MPI_Type_commit(type, ierr)
  call MPI_Bcast(MPI_BOTTOM, 1, type, n - 1, MPI_COMM_WORLD, ierr)
  call MPI_Type_free(type, ierr)
  if (number /= n - 1) errors = errors + 1
  own = rank
  call MPI_Ibarrier(MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Comm_split(MPI_COMM_WORLD, 0, rank, comm, ierr)
  call MPI_Iallgather(own, 1, MPI_INTEGER, all, 1, MPI_INTEGER, comm, requests(2), ierr)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  call MPI_Comm_free(comm, ierr)
  if (any(all /= [(i, i=0, n - 1)])) errors = errors + 1
end subroutine

subroutine by_f08(errors)
  use mpi_f08
  implicit none
  integer, intent(inout) :: errors
  integer :: rank, n, i
  integer, allocatable :: counts(:), shifts(:), parts(:)
  type(MPI_Comm) :: comm
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status
  logical :: done
  integer :: near(2), ring(2)
  complex :: z(2)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_rank(comm, rank)
  call MPI_Comm_size(comm, n)
  z = cmplx(rank, 1)
  call MPI_Allreduce(MPI_IN_PLACE, z, 2, MPI_COMPLEX, MPI_SUM, comm)
  if (any(z /= cmplx(n * (n - 1) / 2, n))) errors = errors + 1
  counts = [(i, i=1, n)]
  shifts = [(i * (i - 1) / 2, i=1, n)]
  allocate (parts(n * (n + 1) / 2))
  parts(shifts(rank + 1) + 1:shifts(rank + 1) + counts(rank + 1)) = rank
  call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, parts, counts, shifts, MPI_INTEGER, comm)
  do i = 1, n
    if (any(parts(shifts(i) + 1:shifts(i) + counts(i)) /= i - 1)) errors = errors + 1
  end do
  call MPI_Barrier(comm)
  call MPI_Comm_free(comm)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm) ! with calls that do not block alone
  call MPI_Ibarrier(comm, requests(1))
  z = cmplx(rank, 1)
  call MPI_Iallreduce(MPI_IN_PLACE, z, 2, MPI_COMPLEX, MPI_SUM, comm, requests(2))
  done = .false.
  do while (.not. done)
    call MPI_Request_get_status(requests(2), done, status)
  end do
  done = .false.
  do while (.not. done)
    call MPI_Testall(2, requests, done, MPI_STATUSES_IGNORE)
  end do
  if (any(z /= cmplx(n * (n - 1) / 2, n))) errors = errors + 1
  call MPI_Comm_free(comm)
  ! A ring: what goes down comes from above.
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [n], [.true.], .false., comm)
  ring = [rank, -rank]
  call MPI_Ineighbor_alltoall(ring, 1, MPI_INTEGER, near, 1, MPI_INTEGER, comm, requests(1))
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
  if (any(near /= [-modulo(rank - 1, n), modulo(rank + 1, n)])) errors = errors + 1
  call MPI_Comm_free(comm)
end subroutine

program mpi_fortran
  use mpi_f08
  implicit none
  integer :: errors, rank
  errors = 0
  call MPI_Init()
  call by_include(errors)
  call by_module(errors)
  call by_f08(errors)
  call MPI_Allreduce(MPI_IN_PLACE, errors, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  if (rank == 0) print '(i0, a)', errors, ' errors'
  call MPI_Finalize()
  if (errors > 0) stop 1
end program
