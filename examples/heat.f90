! SPDX-License-Identifier: Apache-2.0
! examples/heat.f90: examples/heat.c in Fortran, by module gyre. It prints the same.
!
!     gfortran -O2 -ffp-contract=off heat.f90 $(pkg-config --cflags --libs gyre-fortran) -o heat-f90
!     ucx-run -n 4 ./heat-f90 [rows [columns [steps]]]
!
! The plate lies by columns of Fortran: u(column, row), so that a row is contiguous.
module plates
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none

  ! A band of rows, with one more row above (0) and below (rows + 1).
  type band_t
    integer :: first, rows, columns ! rows first .. first + rows - 1 of the plate, counted from 0
    real(real64), allocatable :: now(:, :), next(:, :)
  end type

contains

  ! Rows of rank r of n: as even as can be.
  integer function first_row(rows, r, n)
    integer, intent(in) :: rows, r, n
    first_row = rows / n * r + min(r, mod(rows, n))
  end function

  subroutine create(band, first, rows, columns)
    type(band_t), intent(out) :: band
    integer, intent(in) :: first, rows, columns
    band%first = first
    band%rows = rows
    band%columns = columns
    allocate (band%now(columns, 0:rows + 1), band%next(columns, 0:rows + 1))
    band%now = 0
    if (first == 0) band%now(:, 1) = 1 ! the plate's first row is hot; the other edges stay cold
    band%next = band%now
  end subroutine

  ! One step. change: the sum of squared changes of the band's rows.
  subroutine step(band, plate, change)
    type(band_t), intent(inout) :: band
    integer, intent(in) :: plate
    real(real64), intent(out) :: change
    real(real64), allocatable :: swap(:, :)
    integer :: r, c
    change = 0
    do r = 1, band%rows
      if (band%first + r - 1 == 0 .or. band%first + r == plate) cycle ! the edges are held
      associate (u => band%now, v => band%next)
        do c = 2, band%columns - 1
          v(c, r) = u(c, r) + 0.2_real64 * &
              ((((u(c - 1, r) + u(c + 1, r)) + u(c, r - 1)) + u(c, r + 1)) - 4 * u(c, r))
          change = change + (v(c, r) - u(c, r)) * (v(c, r) - u(c, r))
        end do
      end associate
    end do
    call move_alloc(band%now, swap)
    call move_alloc(band%next, band%now)
    call move_alloc(swap, band%next)
  end subroutine

end module

program heat
  use gyre
  use plates
  implicit none
  type(gyre_comm) :: world
  type(band_t) :: band
  integer :: plate, columns, steps, rank, n, first, s, r, wrong
  integer, allocatable :: counts(:)
  real(real64), allocatable :: field(:, :)
  real(real64) :: change

  plate = argument(1, 256)
  columns = argument(2, 256)
  steps = argument(3, 400)
  call gyre_init(world)
  rank = gyre_comm_rank(world)
  n = gyre_comm_size(world)
  if (plate < n .or. columns < 3 .or. steps < 1) then
    error stop 'usage: heat [rows [columns [steps]]], at least one row per rank and three columns'
  end if

  first = first_row(plate, rank, n)
  call create(band, first, first_row(plate, rank + 1, n) - first, columns)
  do s = 1, steps
    call exchange()
    call step(band, plate, change)
    call gyre_all_reduce(recv=change, op=GYRE_SUM, comm=world)
    if (rank == 0 .and. mod(s, merge(steps / 4, 1, steps > 4)) == 0) then
      print '(a,i0,a,a)', 'step ', s, ': sum of squared changes ', scientific(change, 6)
    end if
  end do

  counts = [((first_row(plate, r + 1, n) - first_row(plate, r, n)) * columns, r=0, n - 1)]
  wrong = 0
  if (rank == 0) then
    allocate (field(columns, plate))
    call gyre_gatherv(band%now(:, 1:band%rows), field, counts, 0, world)
    wrong = differs()
  else
    call gyre_gatherv(band%now(:, 1:band%rows), root=0, comm=world)
  end if
  call gyre_broadcast(wrong, 0, world)
  if (wrong /= 0) stop 1
  call gyre_finalize(world)

contains

  ! Rows of the neighbours to above and below ours. All four messages are started together.
  subroutine exchange()
    call gyre_group_start()
    if (rank > 0) then
      call gyre_send(band%now(:, 1), rank - 1, world)
      call gyre_recv(band%now(:, 0), rank - 1, world)
    end if
    if (rank + 1 < n) then
      call gyre_send(band%now(:, band%rows), rank + 1, world)
      call gyre_recv(band%now(:, band%rows + 1), rank + 1, world)
    end if
    call gyre_group_end()
  end subroutine

  ! Rank 0: the same plate in one piece; 0 if the field has the same bits.
  integer function differs()
    type(band_t) :: whole
    real(real64) :: alone, off
    logical :: same
    integer :: i
    call create(whole, 0, plate, columns)
    do i = 1, steps
      call step(whole, plate, alone)
    end do
    same = .not. any(field < whole%now(:, 1:plate) .or. field > whole%now(:, 1:plate))
    off = change
    if (alone > 0) off = (change - alone) / alone ! the sums run in another order
    print '(4a)', 'against one process: field ', trim(merge('identical to the last bit', &
        'DIFFERS                  ', same)), ', norm off by ', scientific(off, 1)
    differs = merge(0, 1, same .and. abs(off) < 1e-12_real64)
  end function

  ! As C's %.Ne: a digit before the point, and two in the exponent.
  function scientific(x, digits) result(text)
    real(real64), intent(in) :: x
    integer, intent(in) :: digits
    character(len=:), allocatable :: text
    character(len=32) :: buffer, form
    write (form, '(a,i0,a)') '(es32.', digits, 'e2)'
    write (buffer, form) x
    text = trim(adjustl(buffer))
    text = text(:index(text, 'E') - 1) // 'e' // text(index(text, 'E') + 1:)
  end function

  integer function argument(i, otherwise)
    integer, intent(in) :: i, otherwise
    character(len=20) :: text
    integer :: bad
    argument = otherwise
    if (command_argument_count() < i) return
    call get_command_argument(i, text)
    read (text, *, iostat=bad) argument
    if (bad /= 0) argument = 0
  end function

end program
