// What the programs of this folder have in common: each is two processes that do the same work as `gambeson bench link`.
//
//   PEER serve FOLDER CARRIER   prints one line, PID and where and how to connect, and answers until its input ends
//   PEER ask FOLDER CARRIER     reads that line, then lines "trips|outstanding|stream LENGTH COUNT"; answers each with
//                               "SECONDS CPU_SECONDS", processor time being that of both processes
//
// FOLDER has certificates, where they are needed.
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OUTSTANDING = 64 };

// The first byte of a message says what the server does with it.
enum { ECHO = 0, TAKE = 1, LAST = 2 };

struct work {
  char kind[16];
  size_t length;
  long count;
};

static inline double clock_s(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void die(const char *what, const char *why) {
  fprintf(stderr, "peer: %s: %s\n", what, why);
  exit(1);
}

// Performs every work that comes in; `perform` does one.
static inline void answer_works(pid_t server, void (*perform)(const struct work *)) {
  clockid_t there;
  if (clock_getcpuclockid(server, &there) != 0) die("server", "it has no clock");
  struct work work;
  while (scanf("%15s %zu %ld", work.kind, &work.length, &work.count) == 3) {
    // Whoever measured before has the caches full of something else.
    struct work warm = {"trips", work.length, 1};
    perform(&warm);
    double cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) + clock_s(there);
    double began = clock_s(CLOCK_MONOTONIC);
    perform(&work);
    double seconds = clock_s(CLOCK_MONOTONIC) - began;
    cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) + clock_s(there) - cpu;
    printf("%.9f %.9f\n", seconds, cpu);
    fflush(stdout);
  }
}

// The server ends with who started it.
static inline void *until_input_ends(void *nothing) {
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  exit(0);
  return nothing;
}

static inline void end_with_input(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, until_input_ends, NULL);
}

static inline char *read_file(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  if (!file) die(path, "it cannot be read");
  char *text = (char *)calloc(1, 65536);
  if (fread(text, 1, 65535, file) == 0) die(path, "it is empty");
  fclose(file);
  return text;
}
