/* child fork|vfork|clone|clone-vm: rank 0 makes a child in that way, and the child tries to send to rank 1. Rank 1 must
 * never get that message; the parent goes on working. Rank 0 prints `CHILD refused|sent|hung|died`, both ranks print
 * `RIGHT <rank>` at the end. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FROM_PARENT = 1, FROM_CHILD = 99, REFUSED = 42, ROUNDS = 100 };

static void wrong(const char *what)
{
    fprintf(stdout, "WRONG %s\n", what);
    fflush(stdout);
    _exit(3);
}

static int act_as_child(void *unused)
{
    long secret = 4711;
    (void)unused;
    alarm(5);
    int status = MPI_Send(&secret, sizeof secret, MPI_BYTE, 1, FROM_CHILD, MPI_COMM_WORLD);
    _exit(status == MPI_SUCCESS ? 0 : REFUSED);
}

static pid_t make_child(const char *how)
{
    pid_t child;
    if (!strcmp(how, "fork")) {
        child = fork();
    } else if (!strcmp(how, "vfork")) {
        child = vfork();
    } else if (!strcmp(how, "clone")) {
        /* The raw system call: no handler that the C library runs at fork sees this child. */
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    } else {
        static char stack[1 << 20];
        return clone(act_as_child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    }
    if (!child)
        act_as_child(NULL);
    return child;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc != 2)
        return 2;
    MPI_Request ghost = MPI_REQUEST_NULL;
    long got = 0, value;
    if (rank == 1)
        MPI_Irecv(&got, sizeof got, MPI_BYTE, 0, FROM_CHILD, MPI_COMM_WORLD, &ghost);
    for (long round = 0; round < 2 * ROUNDS; round++) {
        if (rank == 0 && round == ROUNDS) {
            int status = 0;
            pid_t child = make_child(argv[1]);
            if (child < 0 || waitpid(child, &status, 0) != child)
                wrong("no child");
            const char *fate = WIFSIGNALED(status) ? (WTERMSIG(status) == SIGALRM ? "hung" : "died")
                               : WEXITSTATUS(status) == REFUSED ? "refused"
                               : WEXITSTATUS(status) == 0       ? "sent"
                                                                : "died";
            printf("CHILD %s\n", fate);
            fflush(stdout);
        }
        value = round;
        if (rank == 0) {
            MPI_Send(&value, sizeof value, MPI_BYTE, 1, FROM_PARENT, MPI_COMM_WORLD);
            MPI_Recv(&value, sizeof value, MPI_BYTE, 1, FROM_PARENT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (value != round + 1)
                wrong("parent's echo");
        } else {
            MPI_Recv(&value, sizeof value, MPI_BYTE, 0, FROM_PARENT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (value != round)
                wrong("parent's message");
            value++;
            MPI_Send(&value, sizeof value, MPI_BYTE, 0, FROM_PARENT, MPI_COMM_WORLD);
        }
    }
    if (rank == 1) {
        int done;
        MPI_Test(&ghost, &done, MPI_STATUS_IGNORE);
        if (done)
            wrong("the child's message arrived");
        MPI_Cancel(&ghost);
        MPI_Wait(&ghost, MPI_STATUS_IGNORE);
    }
    printf("RIGHT %d\n", rank);
    MPI_Finalize();
    return 0;
}
