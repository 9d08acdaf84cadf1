! Coarray Fortran: puts, gets, collectives and synchronisation between images, which the library maps onto one-sided MPI.
program coarrays
  implicit none
  integer, parameter :: n = 20000
  integer :: image, images, right, k, total
  integer :: values(n)[*]
  real(8) :: scalar[*]

  image = this_image()
  images = num_images()
  right = merge(1, image + 1, image == images)
  values = 0
  sync all
  values(:)[right] = [(k + 1000*image, k=1, n)]
  sync all
  k = merge(images, image - 1, image == 1)
  if (any(values /= [(total + 1000*k, total=1, n)])) error stop 'a put went wrong'
  scalar = image*1.5d0
  sync all
  if (scalar[right] /= right*1.5d0) error stop 'a get went wrong'
  total = image
  call co_sum(total)
  if (total /= images*(images + 1)/2) error stop 'co_sum went wrong'
  sync all
  if (image == 1) print '(a)', 'all ok'
end program
