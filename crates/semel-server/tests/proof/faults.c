/* A library that stands between a program and libc (LD_PRELOAD) and makes files and clocks fail on command.
 *
 * The commands are words in a small shared file, FAULTS_CONTROL (see faults.rs, which writes it). Only regular files below
 * FAULTS_FOLDER are touched, and the folder itself. Whatever is written and synced there is noted in FAULTS_JOURNAL, if
 * that is set: from it power.rs makes the disks that a power cut could leave. Indexes that SQLite keeps in shared memory
 * (`-shm`) are left alone: it makes them anew after every crash.
 *
 * One mutex orders all writes, so that the journal has them in the order in which they took place. */
#undef _FILE_OFFSET_BITS
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "offsets have 64 bits");

/* The words of the shared file, in this order. */
struct control {
    int64_t error_in;     /* the sync that many syncs from now fails with EIO: 1 is the next one, 0 none */
    int64_t error_kind;   /* and what was written since the last sync is (enum error_kind) */
    int64_t error_only;   /* 1: only syncs of databases themselves count and fail, not of their logs */
    int64_t room;         /* files may grow by so many bytes, then it is ENOSPC; negative: without limit */
    int64_t clock_offset; /* nanoseconds that are added to the wall clock */
    int64_t write_micros; /* how much longer a write takes, */
    int64_t sync_micros;  /* and a sync */
    int64_t syncs;        /* counted here: syncs, */
    int64_t errors;       /* those of them that failed on command, */
    int64_t refused;      /* and calls refused with ENOSPC */
};

enum error_kind {
    KEPT = 0,    /* on the disk all the same */
    LOST = 1,    /* lost, and the old data is read again, as after the cache was emptied */
    CACHED = 2,  /* lost without a sign: it is read from the cache, which takes it for clean, as Linux does */
};

enum record_kind { OPENED = 1, WRITTEN, CUT_TO, SYNCED, DROPPED, UNLINKED, RENAMED, FOLDER_SYNCED };

/* What the journal has of a call; `length` bytes follow. */
struct record {
    uint64_t kind;
    uint64_t file;   /* its inode */
    uint64_t at;     /* WRITTEN: where; CUT_TO: the new length; SYNCED, DROPPED, FOLDER_SYNCED: the journal's length when it began */
    uint64_t length;
};

/* What was in a file before it was written to, newest first; to take it back. */
struct undo {
    struct undo *older;
    off_t at;
    size_t length;
    char bytes[];
};

enum { MAX_FD = 4096 };
/* The inode behind a descriptor; 0: none of ours. The folder itself has the inode FOLDER. */
static uint64_t file_of[MAX_FD];
static const uint64_t FOLDER = UINT64_MAX;
static char is_database[MAX_FD];
/* A sync of the same file has failed, and this descriptor has yet to say so: Linux tells each one that was open, once. */
static char owes_error[MAX_FD];
static struct { uint64_t file; struct undo *newest; } undos[64];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile struct control *control;
static char folder[PATH_MAX];
static size_t folder_length;
static int journal = -1;
static uint64_t journal_length;

/* The function of libc with this name. */
#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int real_open(const char *path, int flags, mode_t mode) { REAL(open); return real(path, flags, mode); }
static ssize_t real_pwrite(int fd, const void *data, size_t length, off_t at) { REAL(pwrite); return real(fd, data, length, at); }
static int real_ftruncate(int fd, off_t length) { REAL(ftruncate); return real(fd, length); }
static int real_clock(clockid_t id, struct timespec *now) { REAL(clock_gettime); return real(id, now); }

static void give_up(const char *what) {
    fprintf(stderr, "faults: %s: %s\n", what, strerror(errno));
    abort();
}

/* Loaded, before the program begins. */
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CONTROL"), *below = getenv("FAULTS_FOLDER"), *notes = getenv("FAULTS_JOURNAL");
    if (!path || !below) return;
    int fd = real_open(path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) give_up(path);
    void *shared = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) give_up(path);
    close(fd);
    folder_length = strlen(below);
    if (folder_length >= sizeof folder) give_up(below);
    memcpy(folder, below, folder_length + 1);
    if (notes) {
        /* Appended to: a process that was killed is followed by another one. */
        journal = real_open(notes, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        struct stat found;
        if (journal < 0 || fstat(journal, &found)) give_up(notes);
        journal_length = (uint64_t)found.st_size;
    }
    control = shared;
}

/* Its name below the folder: "" for the folder itself, NULL for whatever else. */
static const char *name_below(const char *path) {
    if (!control || strncmp(path, folder, folder_length)) return NULL;
    if (!path[folder_length]) return "";
    if (path[folder_length] != '/') return NULL;
    const char *end = strrchr(path, '-');
    return end && !strcmp(end, "-shm") ? NULL : path + folder_length + 1;
}

static uint64_t tracked(int fd) { return fd >= 0 && fd < MAX_FD ? file_of[fd] : 0; }

/* Under the mutex. */
static void note(enum record_kind kind, uint64_t file, uint64_t at, const void *bytes, size_t length) {
    if (journal < 0) return;
    REAL(writev);
    struct record record = {kind, file, at, length};
    struct iovec parts[2] = {{&record, sizeof record}, {(void *)bytes, length}};
    size_t all = sizeof record + length;
    if (real(journal, parts, length ? 2 : 1) != (ssize_t)all) give_up("the journal");
    journal_length += all;
}

/* ---- Opening and closing ---- */

static int opened(int fd, int flags) {
    char link[64], path[PATH_MAX];
    struct stat found;
    if (!control || fd < 0 || fd >= MAX_FD) return fd;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return fd;
    path[length] = 0;
    const char *name = name_below(path);
    if (!name || fstat(fd, &found)) return fd;
    pthread_mutex_lock(&mutex);
    owes_error[fd] = 0;
    if (!*name) {
        file_of[fd] = FOLDER;
    } else if (S_ISREG(found.st_mode)) {
        file_of[fd] = found.st_ino;
        is_database[fd] = length > 3 && !strcmp(path + length - 3, ".db");
        note(OPENED, found.st_ino, 0, name, strlen(name));
        if (flags & O_TRUNC) note(CUT_TO, found.st_ino, 0, NULL, 0);
    }
    pthread_mutex_unlock(&mutex);
    return fd;
}

/* The mode is there only if a file may be made. */
#define MODE(flags) \
    mode_t mode = 0; \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags); REAL(open); return opened(real(path, flags, mode), flags); }
int open64(const char *path, int flags, ...) { MODE(flags); REAL(open64); return opened(real(path, flags, mode), flags); }
int openat(int at, const char *path, int flags, ...) { MODE(flags); REAL(openat); return opened(real(at, path, flags, mode), flags); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags); REAL(openat64); return opened(real(at, path, flags, mode), flags); }

int close(int fd) {
    REAL(close);
    if (tracked(fd)) {
        pthread_mutex_lock(&mutex);
        file_of[fd] = 0;
        pthread_mutex_unlock(&mutex);
    }
    return real(fd);
}

/* ---- Writing ---- */

static struct undo **undos_of(uint64_t file) {
    for (size_t i = 0; i < sizeof undos / sizeof *undos; i++) {
        if (!undos[i].file) undos[i].file = file;
        if (undos[i].file == file) return &undos[i].newest;
    }
    errno = ENFILE;
    give_up("too many files");
    return NULL;
}

/* Under the mutex: forgets what was in a file, or puts it back. */
static void end_undos(int fd, uint64_t file, int put_back) {
    struct undo **newest = undos_of(file);
    while (*newest) {
        struct undo *undo = *newest;
        *newest = undo->older;
        if (put_back && real_pwrite(fd, undo->bytes, undo->length, undo->at) < 0) give_up("taking back a write");
        free(undo);
    }
}

/* Under the mutex: remembers what is in a file where it is about to be written to. Beyond its end there are zeros. */
static void remember(int fd, uint64_t file, off_t at, size_t length) {
    if (control->error_kind != LOST) return;
    REAL(pread);
    struct undo *undo = calloc(1, sizeof *undo + length), **newest = undos_of(file);
    if (!undo) give_up("memory");
    if (real(fd, undo->bytes, length, at) < 0) {
        /* Not open for reading: then it is none of the files that SQLite reads again. */
        free(undo);
        return;
    }
    undo->at = at;
    undo->length = length;
    undo->older = *newest;
    *newest = undo;
}

/* Under the mutex: whether a file may become this long. */
static int has_room(int fd, off_t end) {
    struct stat found;
    if (control->room < 0 || fstat(fd, &found) || end <= found.st_size) return 1;
    if (end - found.st_size > control->room) {
        control->refused++;
        errno = ENOSPC;
        return 0;
    }
    control->room -= end - found.st_size;
    return 1;
}

static ssize_t write_at(int fd, const void *data, size_t length, off_t at) {
    if (control->write_micros > 0) usleep((useconds_t)control->write_micros);
    pthread_mutex_lock(&mutex);
    uint64_t file = file_of[fd];
    ssize_t written = -1;
    if (has_room(fd, at + (off_t)length)) {
        remember(fd, file, at, length);
        written = real_pwrite(fd, data, length, at);
        if (written > 0) note(WRITTEN, file, (uint64_t)at, data, (size_t)written);
    }
    int error = errno;
    pthread_mutex_unlock(&mutex);
    errno = error;
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    return tracked(fd) ? write_at(fd, data, length, at) : real_pwrite(fd, data, length, at);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) { return pwrite(fd, data, length, at); }

/* No threads share a descriptor of these files, so its position does not move meanwhile. */
ssize_t write(int fd, const void *data, size_t length) {
    REAL(write);
    if (!tracked(fd)) return real(fd, data, length);
    off_t at = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t written = write_at(fd, data, length, at);
    if (written > 0) lseek(fd, at + written, SEEK_SET);
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    if (!tracked(fd)) return real(fd, parts, count);
    ssize_t all = 0;
    for (int i = 0; i < count; i++) {
        ssize_t written = write(fd, parts[i].iov_base, parts[i].iov_len);
        if (written < 0) return all ? all : -1;
        all += written;
        if ((size_t)written < parts[i].iov_len) break;
    }
    return all;
}

int ftruncate(int fd, off_t length) {
    uint64_t file = tracked(fd);
    if (!file) return real_ftruncate(fd, length);
    pthread_mutex_lock(&mutex);
    int failed = !has_room(fd, length) || real_ftruncate(fd, length);
    if (!failed) note(CUT_TO, file, (uint64_t)length, NULL, 0);
    int error = errno;
    pthread_mutex_unlock(&mutex);
    errno = error;
    return failed ? -1 : 0;
}

int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

/* ---- Syncing ---- */

/* A sync covers what was written before it began; the others go on meanwhile. */
static int sync_file(int fd, int (*real)(int)) {
    uint64_t file = tracked(fd);
    if (!file) return real(fd);
    pthread_mutex_lock(&mutex);
    uint64_t began = journal_length;
    control->syncs++;
    int counts = is_database[fd] || !control->error_only;
    int fails = counts && control->error_in > 0 && --control->error_in == 0;
    enum error_kind kind = (enum error_kind)control->error_kind;
    if (fails) {
        control->errors++;
        for (int other = 0; other < MAX_FD; other++) owes_error[other] |= file_of[other] == file;
    }
    int tells = owes_error[fd];
    owes_error[fd] = 0;
    end_undos(fd, file, fails && kind == LOST);
    pthread_mutex_unlock(&mutex);
    if (control->sync_micros > 0) usleep((useconds_t)control->sync_micros);
    int failed = real(fd), error = tells ? EIO : errno;
    pthread_mutex_lock(&mutex);
    if (file == FOLDER) {
        if (!failed && !(fails && kind != KEPT)) note(FOLDER_SYNCED, 0, began, NULL, 0);
    } else if (fails && kind != KEPT) {
        note(DROPPED, file, began, &kind, sizeof kind);
    } else if (!failed) {
        note(SYNCED, file, began, NULL, 0);
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return failed || tells ? -1 : 0;
}

int fsync(int fd) { REAL(fsync); return sync_file(fd, real); }
int fdatasync(int fd) { REAL(fdatasync); return sync_file(fd, real); }

/* ---- Names ---- */

int unlink(const char *path) {
    REAL(unlink);
    const char *name = name_below(path);
    if (!name) return real(path);
    pthread_mutex_lock(&mutex);
    int failed = real(path), error = errno;
    if (!failed) note(UNLINKED, 0, 0, name, strlen(name));
    pthread_mutex_unlock(&mutex);
    errno = error;
    return failed;
}

/* Both names with their zeros. */
int rename(const char *from, const char *to) {
    REAL(rename);
    const char *old = name_below(from), *new = name_below(to);
    if (!old || !new) return real(from, to);
    char names[2 * PATH_MAX];
    size_t length = (size_t)snprintf(names, sizeof names, "%s%c%s", old, 0, new) + 1;
    pthread_mutex_lock(&mutex);
    int failed = real(from, to), error = errno;
    if (!failed) note(RENAMED, 0, 0, names, length);
    pthread_mutex_unlock(&mutex);
    errno = error;
    return failed;
}

/* ---- Time ---- */

static int64_t clock_offset(void) { return control ? control->clock_offset : 0; }

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = real_clock(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + clock_offset();
        now->tv_sec = nanos / 1000000000;
        now->tv_nsec = nanos % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &fine)) return -1;
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec fine;
    if (clock_gettime(CLOCK_REALTIME, &fine)) return -1;
    if (now) *now = fine.tv_sec;
    return fine.tv_sec;
}
