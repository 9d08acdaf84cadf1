/* Gambeson's plug-in for Slurm (SPANK, spank(8)): takes the secret of `gambeson run -- srun` to the hosts of its step.
 *
 *   gambeson run ── srun, this plug-in ── MUNGE credential for root, in the step's environment ──┐
 *        │                                                                                       │
 *        └═ link ═ gambeson keep, as the user ── stream ── slurmstepd, this plug-in ── munged ───┘
 *
 * In srun it reads the job's files from a descriptor that `gambeson run` left open, and has munged encrypt them, with
 * the step that they are for, so that root alone can have them back. In slurmstepd, which is root, it takes the credential out
 * of the environment, has munged open it (once on each host), compares user, job and step, and hands the files to
 * `gambeson keep`, which it starts as the user and which keeps them in memory until the step has ended. No task runs
 * without the files: where something is wrong, `gambeson enter`, through which tasks start, says the sentence left here.
 *
 * plugstack.conf:  optional /usr/local/lib/gambeson/gambeson_spank.so [gambeson=PROGRAM] [munge=SOCKET]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <munge.h>
#include <slurm/spank.h>

SPANK_PLUGIN(gambeson, 1);

#ifndef GAMBESON
#define GAMBESON "/usr/local/bin/gambeson"
#endif

/* What `gambeson run` tells srun: the number of a descriptor, or that it asks whether there is a plug-in. */
#define FROM_RUN "GAMBESON_SLURM"
/* The credential on its way. Names that begin so pass even --export=NONE. */
#define SEALED "SLURM_GAMBESON"
/* What `gambeson enter` says before it refuses. */
#define REFUSED "GAMBESON_REFUSED"
/* The last letter counts changes of what srun's side and slurmstepd's say to each other, and to `gambeson`. */
#define MAGIC "GBSNSLM1"
#define HEADER (sizeof MAGIC - 1 + 2 * sizeof(uint32_t))
/* munged takes a message of 1 MiB, in which it writes bytes as base64. */
#define FILES_MAX (512 << 10)
#define START_SECONDS 30
#define END_SECONDS 30

/* The stream to `gambeson keep` of this step. Its end is the step's. */
static int keeper = -1;

static const char *option(int count, char **options, const char *name, const char *otherwise)
{
	size_t length = strlen(name);
	for (int i = 0; i < count; i++)
		if (!strncmp(options[i], name, length) && options[i][length] == '=')
			return options[i] + length + 1;
	return otherwise;
}

static munge_ctx_t munge(int count, char **options)
{
	const char *socket = option(count, options, "munge", NULL);
	munge_ctx_t context = munge_ctx_create();
	if (context && socket && munge_ctx_set(context, MUNGE_OPT_SOCKET, socket) != EMUNGE_SUCCESS) {
		munge_ctx_destroy(context);
		return NULL;
	}
	return context;
}

static void put(unsigned char *at, uint32_t number)
{
	for (int i = 0; i < 4; i++)
		at[i] = number >> (24 - 8 * i);
}

/* Which step this is, as it stands in front of the files. */
static bool header(spank_t spank, unsigned char *into)
{
	uint32_t job, step;
	if (spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_STEPID, &step))
		return false;
	memcpy(into, MAGIC, sizeof MAGIC - 1);
	put(into + sizeof MAGIC - 1, job);
	put(into + sizeof MAGIC - 1 + 4, step);
	return true;
}

/* ---- in srun, as the user */

/* Says it, and leaves it where `gambeson run` looks, which then ends the job. */
static int refuse_start(const char *what, const char *why)
{
	const char *job = getenv("GAMBESON_JOB");
	char path[512];
	slurm_error("gambeson: %s (%s), so the job's secret cannot be taken to its hosts", what, why);
	if (job && snprintf(path, sizeof path, "%s/refused-%d", job, (int)getpid()) < (int)sizeof path) {
		int word = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (word >= 0) {
			dprintf(word, "srun\ngambeson: %s (%s), so the job's secret cannot be taken to its hosts\n", what, why);
			close(word);
		}
	}
	return -1;
}

/* `gambeson run` asks before it has anything to lose. */
static void answer(void)
{
	const char *asked = getenv(FROM_RUN);
	if (asked && !strcmp(asked, "?"))
		printf("%s\n", MAGIC);
}

/* The step is known, and nothing of it has started. */
int slurm_spank_local_user_init(spank_t spank, int count, char **options)
{
	const char *number = getenv(FROM_RUN);
	if (!number)
		return 0;
	int from = atoi(number), status = -1;
	unsetenv(FROM_RUN);
	unsetenv(SEALED);
	struct stat file;
	if (fstat(from, &file) || !S_ISREG(file.st_mode))
		return refuse_start("the descriptor of the job's files did not reach srun",
				    "start srun itself, not a script that closes it");
	if (file.st_size <= 0 || file.st_size > FILES_MAX)
		return refuse_start("the job's files are too long for munged", "their policy and the site's directory count");
	size_t length = HEADER + file.st_size;
	unsigned char *files = malloc(length);
	munge_ctx_t context = munge(count, options);
	char *sealed = NULL;
	if (!files || !context)
		refuse_start("no memory could be had", "or the path of munged's socket is none");
	else if (!header(spank, files) || pread(from, files + HEADER, file.st_size, 0) != file.st_size)
		refuse_start("the job's files cannot be read, or srun does not say which step this is", strerror(errno));
	else if (munge_ctx_set(context, MUNGE_OPT_UID_RESTRICTION, (uid_t)0) != EMUNGE_SUCCESS ||
		 munge_ctx_set(context, MUNGE_OPT_CIPHER_TYPE, MUNGE_CIPHER_AES256) != EMUNGE_SUCCESS ||
		 munge_ctx_set(context, MUNGE_OPT_MAC_TYPE, MUNGE_MAC_SHA256) != EMUNGE_SUCCESS ||
		 munge_encode(&sealed, context, files, length) != EMUNGE_SUCCESS)
		refuse_start("munged of this host did not encrypt the job's files", munge_ctx_strerror(context));
	else if (setenv(SEALED, sealed, 1))
		refuse_start("srun's environment cannot be changed", strerror(errno));
	else
		status = 0;
	if (files) {
		explicit_bzero(files, length);
		free(files);
	}
	free(sealed);
	if (context)
		munge_ctx_destroy(context);
	close(from);
	return status;
}

/* ---- in slurmstepd, as root */

/* Leaves the sentence that the step's tasks say instead of running. */
__attribute__((format(printf, 2, 3))) static void refuse(spank_t spank, const char *format, ...)
{
	char sentence[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(sentence, sizeof sentence, format, arguments);
	va_end(arguments);
	/* Part of it may be the user's. */
	for (char *at = sentence; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 127)
			*at = '?';
	slurm_error("gambeson: %s", sentence);
	spank_setenv(spank, REFUSED, sentence, 1);
}

static void close_others(void)
{
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, 3, ~0U, 0))
		return;
#endif
	/* Linux before 5.9. */
	for (int open = sysconf(_SC_OPEN_MAX) - 1; open > 2; open--)
		close(open);
}

/* Becomes `gambeson keep` of the user. It is no child of slurmstepd, which ends its children with the tasks. */
static void become(const char *program, uint32_t hosts, uid_t uid, gid_t gid, int stream)
{
	char count[16];
	snprintf(count, sizeof count, "%u", (unsigned)hosts);
	char *words[] = {"gambeson", "keep", "--step", count, NULL};
	char *environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", NULL};
	int nowhere = open("/dev/null", O_WRONLY);
	if (setsid() < 0 || fork() != 0)
		_exit(0);
	/* slurmstepd blocks signals, and not all of its descriptors are closed by execve. */
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(077);
	if (setgroups(1, &gid) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid) || chdir("/") || nowhere < 0 ||
	    dup2(stream, 0) < 0 || dup2(stream, 1) < 0 || dup2(nowhere, 2) < 0)
		_exit(1);
	close_others();
	execve(program, words, environment);
	/* Whoever reads the stream takes what is no promise for the reason. */
	dprintf(1, "%s cannot be started (%s); say in plugstack.conf where it is, gambeson=PROGRAM\n", program,
		strerror(errno));
	_exit(1);
}

/* Starts it with the step's files. What it says is in `said`, a line; false if nothing came. */
static bool keep(const char *program, uint32_t hosts, uid_t uid, gid_t gid, const unsigned char *files, size_t length,
		 char *said, size_t room)
{
	int ends[2];
	struct timeval patience = {.tv_sec = START_SECONDS};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return false;
	pid_t child = fork();
	if (child == 0)
		become(program, hosts, uid, gid, ends[1]);
	close(ends[1]);
	keeper = ends[0];
	if (child < 0 || waitpid(child, NULL, 0) < 0)
		return false;
	setsockopt(keeper, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	setsockopt(keeper, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	for (size_t sent = 0; sent < length;) {
		ssize_t some = send(keeper, files + sent, length - sent, MSG_NOSIGNAL);
		if (some <= 0)
			/* It has said why. */
			break;
		sent += some;
	}
	size_t heard = 0;
	while (heard + 1 < room && recv(keeper, said + heard, 1, 0) == 1 && said[heard] != '\n')
		heard++;
	said[heard] = 0;
	return heard > 0;
}

/* Looks whether the credential is this step's, and starts what keeps its files. */
static void open_sealed(spank_t spank, const char *sealed, int count, char **options)
{
	unsigned char *files = NULL, wanted[HEADER];
	int length = 0;
	uid_t uid, sealer = -1;
	gid_t gid;
	uint32_t hosts;
	char said[512];
	munge_ctx_t context = munge(count, options);
	munge_err_t opened = EMUNGE_NO_MEMORY;
	if (context)
		opened = munge_decode(sealed, context, (void **)&files, &length, &sealer, NULL);
	if (opened != EMUNGE_SUCCESS) {
		refuse(spank, "munged of this host did not open the job's files (%s)", munge_strerror(opened));
	} else if (!header(spank, wanted) || spank_get_item(spank, S_JOB_UID, &uid) ||
		   spank_get_item(spank, S_JOB_GID, &gid) || spank_get_item(spank, S_JOB_NNODES, &hosts)) {
		refuse(spank, "Slurm does not say whose step this is");
	} else if (sealer != uid) {
		refuse(spank, "the job's files were sealed by user %u, and this step is user %u's", (unsigned)sealer,
		       (unsigned)uid);
	} else if (length < (int)HEADER || memcmp(files, MAGIC, sizeof MAGIC - 1)) {
		refuse(spank, "the job's files were sealed by another version of this plug-in; install the same on all hosts");
	} else if (memcmp(files, wanted, HEADER)) {
		refuse(spank, "the job's files were sealed for another step");
	} else if (!keep(option(count, options, "gambeson", GAMBESON), hosts, uid, gid, files + HEADER, length - HEADER, said,
			 sizeof said)) {
		refuse(spank, "`gambeson keep` did not answer there; see what slurmd's log says");
	} else if (strcmp(said, MAGIC)) {
		refuse(spank, "%s", said);
	}
	/* MUNGE hands out what it has opened, in sentences' cases too. */
	if (files) {
		explicit_bzero(files, length);
		free(files);
	}
	if (context)
		munge_ctx_destroy(context);
}

int slurm_spank_init(spank_t spank, int count, char **options)
{
	char **environment;
	if (spank_context() == S_CTX_LOCAL)
		answer();
	if (spank_context() != S_CTX_REMOTE || spank_get_item(spank, S_JOB_ENV, &environment))
		return 0;
	for (; environment && *environment; environment++) {
		if (!strncmp(*environment, SEALED "=", sizeof SEALED)) {
			char *sealed = strdup(*environment + sizeof SEALED);
			spank_unsetenv(spank, SEALED);
			spank_unsetenv(spank, FROM_RUN);
			spank_unsetenv(spank, REFUSED);
			if (sealed)
				open_sealed(spank, sealed, count, options);
			free(sealed);
			break;
		}
	}
	return 0;
}

/* All tasks of the step on this host have ended, whatever ended them. */
int slurm_spank_exit(spank_t spank, int count, char **options)
{
	(void)spank, (void)count, (void)options;
	char byte;
	struct timeval patience = {.tv_sec = END_SECONDS};
	if (keeper < 0)
		return 0;
	setsockopt(keeper, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	shutdown(keeper, SHUT_WR);
	/* It hands over what the ranks left, and goes. */
	while (recv(keeper, &byte, 1, 0) > 0)
		;
	close(keeper);
	keeper = -1;
	return 0;
}
