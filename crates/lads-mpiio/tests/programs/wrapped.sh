#!/bin/sh
# Whether a shim stands before every file function of its MPI: wrapped.sh MPICC SHIM.
# A function that is missed is not refused but done on an empty file, so none may be.
set -eu

# What the library answers for a remote file as it is: its handle is a file of the library. (The shim for
# Open MPI need not know error handlers.)
left='create_errhandler set_errhandler
get_errhandler call_errhandler c2f f2c toint fromint'

# What a compiler sees of mpi.h, and what MPI_File_x it declares.
declared=$(echo '#include <mpi.h>' | "$1" -E -x c - | grep -oE '\bMPI_File_[a-z0-9_]+ *\(' |
    grep -vE 'errhandler_f(unctio)?n' | sed 's/MPI_File_//; s/[ (]//g' | sort -u)
exported=$(nm -D --defined-only "$2" | awk '$2 == "T" { print $3 }')
failures=0
count=0
for name in $declared; do
    count=$((count + 1))
    case " $(echo $left) " in *" $name "*) continue ;; esac
    for full in "MPI_File_$name" "PMPI_File_$name"; do
        if ! echo "$exported" | grep -qx "$full"; then
            echo "wrapped: $full is not in the shim"
            failures=$((failures + 1))
        fi
    done
done
echo "wrapped: $count functions, $failures failures"
[ "$count" -ge 61 ] && [ "$failures" = 0 ]
