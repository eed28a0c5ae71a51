/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/launch.c: gyre-mpi PROGRAM [ARG]...: finds out which MPI library the program uses, preloads
 * the libgyre-mpi that is built for it, and becomes the program. docs/mpi.md.
 *
 * What a program links is read from its file. Only where that names no MPI library, the program's dynamic
 * linker lists the libraries of its libraries, and does not start it. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gyre/version.h>

#ifndef GYRE_MPI_LIBRARIES
#define GYRE_MPI_LIBRARIES "../lib" /* from the folder of this program */
#endif

/* What gyre-mpi exits with if it starts nothing: the codes of a shell, and of ucx-run. */
enum { RC_REFUSED = 2, RC_NOT_RUNNABLE = 126, RC_NOT_FOUND = 127 };
_Noreturn static void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn static void fail(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("gyre-mpi: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(code);
}

enum { NAME_MOST = 64, NAMES_MOST = 4 };
/* The MPI libraries that are linked, as libmpi.so.40 or libmpich.so.12. */
typedef struct {
    int count;
    char of[NAMES_MOST][NAME_MOST];
} names_t;
static bool has(const names_t *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->of[i], name) == 0)
            return true;
    return false;
}
static void add(names_t *names, const char *name)
{
    const bool is_mpi = strncmp(name, "libmpi.so", 9) == 0 || strncmp(name, "libmpich.so", 11) == 0;
    if (is_mpi && strlen(name) < NAME_MOST && names->count < NAMES_MOST && !has(names, name))
        strcpy(names->of[names->count++], name);
}

/* ---- a file ------------------------------------------------------------------------------------------ */

/* OWN_MPI: DYNAMIC, with an MPI library in the program itself. */
typedef enum { NOT_ELF, OTHER_MACHINE, STATIC, DYNAMIC, OWN_MPI } kind_t;
typedef struct {
    const char *bytes; /* mapped for as long as this program runs */
    size_t size;
    size_t first; /* where the program headers begin */
    size_t segments;
} elf_t;

static bool read_part(const elf_t *elf, size_t offset, void *out, size_t size)
{
    if (offset > elf->size || size > elf->size - offset)
        return false;
    memcpy(out, elf->bytes + offset, size);
    return true;
}
static bool read_segment(const elf_t *elf, size_t i, ElfW(Phdr) * out)
{
    return i < elf->segments && read_part(elf, elf->first + i * sizeof(*out), out, sizeof(*out));
}
/* NULL: it does not end in the file. */
static const char *text_at(const elf_t *elf, size_t offset)
{
    const bool ends = offset < elf->size && memchr(elf->bytes + offset, 0, elf->size - offset) != NULL;
    return ends ? elf->bytes + offset : NULL;
}
/* Where in the file lies what is loaded to `address`. */
static bool offset_of(const elf_t *elf, size_t address, size_t *offset)
{
    ElfW(Phdr) s;
    for (size_t i = 0; read_segment(elf, i, &s); i++)
        if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz) {
            *offset = s.p_offset + (address - s.p_vaddr);
            return true;
        }
    return false;
}
static bool read_entry(const elf_t *elf, size_t dynamic, size_t i, ElfW(Dyn) * out)
{
    return read_part(elf, dynamic + i * sizeof(*out), out, sizeof(*out)) && out->d_tag != DT_NULL;
}
static void read_needed(const elf_t *elf, size_t dynamic, names_t *names)
{
    ElfW(Dyn) d;
    size_t texts = 0;
    bool found = false;
    for (size_t i = 0; !found && read_entry(elf, dynamic, i, &d); i++)
        found = d.d_tag == DT_STRTAB && offset_of(elf, d.d_un.d_ptr, &texts);
    for (size_t i = 0; found && read_entry(elf, dynamic, i, &d); i++) {
        const bool named = d.d_tag == DT_NEEDED && d.d_un.d_val < elf->size;
        const char *name = named ? text_at(elf, texts + d.d_un.d_val) : NULL;
        if (name != NULL)
            add(names, name);
    }
}
/* Whether it has an MPI_Init of its own. The symbols of a stripped program do not tell. */
static bool defines_mpi(const elf_t *elf, const ElfW(Ehdr) * head)
{
    ElfW(Shdr) table, texts;
    ElfW(Sym) symbol;
    for (size_t i = 0; i < head->e_shnum; i++) {
        if (!read_part(elf, head->e_shoff + i * sizeof(table), &table, sizeof(table)) ||
            table.sh_type != SHT_SYMTAB ||
            !read_part(elf, head->e_shoff + table.sh_link * sizeof(texts), &texts, sizeof(texts)))
            continue;
        for (size_t at = 0; at + sizeof(symbol) <= table.sh_size; at += sizeof(symbol)) {
            if (!read_part(elf, table.sh_offset + at, &symbol, sizeof(symbol)))
                break;
            const bool defined = symbol.st_shndx != SHN_UNDEF;
            const char *name = defined ? text_at(elf, texts.sh_offset + symbol.st_name) : NULL;
            if (name != NULL && strcmp(name, "MPI_Init") == 0)
                return true;
        }
    }
    return false;
}
static kind_t read_elf(elf_t *elf, names_t *names, const char **interpreter)
{
    extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden"))); /* of this program */
    ElfW(Ehdr) head;
    ElfW(Phdr) s;
    kind_t kind = STATIC;
    if (memcmp(elf->bytes, ELFMAG, SELFMAG) != 0)
        return NOT_ELF;
    if (!read_part(elf, 0, &head, sizeof(head)) ||
        memcmp(head.e_ident, __ehdr_start.e_ident, EI_VERSION) != 0 ||
        head.e_machine != __ehdr_start.e_machine || head.e_phentsize != sizeof(s))
        return OTHER_MACHINE;
    elf->first = head.e_phoff;
    elf->segments = head.e_phnum;
    for (size_t i = 0; read_segment(elf, i, &s); i++) {
        if (s.p_type == PT_DYNAMIC)
            read_needed(elf, s.p_offset, names);
        if (s.p_type == PT_INTERP && (*interpreter = text_at(elf, s.p_offset)) != NULL)
            kind = DYNAMIC;
    }
    if (kind == DYNAMIC && names->count == 0 && head.e_shentsize == sizeof(ElfW(Shdr)) &&
        defines_mpi(elf, &head))
        kind = OWN_MPI;
    return kind;
}
/* names: those that the file itself needs. *interpreter: its dynamic linker, of DYNAMIC. */
static kind_t read_file(const char *path, names_t *names, const char **interpreter)
{
    struct stat about;
    kind_t kind = NOT_ELF;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size >= SELFMAG) {
        elf_t elf = {.size = (size_t)about.st_size};
        void *map = mmap(NULL, elf.size, PROT_READ, MAP_PRIVATE, fd, 0);
        elf.bytes = map;
        kind = map != MAP_FAILED ? read_elf(&elf, names, interpreter) : NOT_ELF;
    }
    if (fd >= 0)
        close(fd);
    return kind;
}

/* ---- what a program needs ---------------------------------------------------------------------------- */

/* What the dynamic linker would load. It writes a line "name => path (address)" for each. False: one of them
 * is missing. */
static bool list_needed(const char *interpreter, const char *program, names_t *names)
{
    int ends[2];
    char line[PATH_MAX + 2 * NAME_MOST];
    bool whole = true;
    if (pipe(ends) != 0)
        return true;
    const pid_t child = fork();
    if (child == 0) {
        const int nothing = open("/dev/null", O_WRONLY);
        dup2(ends[1], STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
        close(ends[0]);
        execl(interpreter, interpreter, "--list", program, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    FILE *lines = child > 0 ? fdopen(ends[0], "r") : NULL;
    while (lines != NULL && fgets(line, sizeof(line), lines) != NULL) {
        char *name = line + strspn(line, " \t");
        whole = whole && strstr(name, "=> not found") == NULL;
        name[strcspn(name, " \n")] = '\0';
        add(names, name);
    }
    if (lines != NULL)
        fclose(lines);
    if (child > 0)
        waitpid(child, NULL, 0);
    return whole;
}

_Noreturn static void fail_to_run(const char *program, int why)
{
    if (why == ENOENT)
        fail(RC_NOT_FOUND, "%s: no such program%s", program,
             strchr(program, '/') != NULL ? " (or the interpreter in its first line)" : " in PATH");
    fail(RC_NOT_RUNNABLE, "%s: %s", program, strerror(why));
}
/* As a shell finds it. Returns 0, or why it cannot be executed. */
static int find_program(const char *name, char path[PATH_MAX])
{
    struct stat about;
    int why = ENOENT;
    const char *list = getenv("PATH");
    if (list == NULL)
        list = "/bin:/usr/bin"; /* as execvp */
    if (strchr(name, '/') != NULL)
        list = NULL;
    const char *at = list != NULL ? list : "";
    for (;; at++) {
        const int length = (int)strcspn(at, ":");
        const char *folder = length > 0 ? at : ".";
        const int written = list == NULL
                                ? snprintf(path, PATH_MAX, "%s", name)
                                : snprintf(path, PATH_MAX, "%.*s/%s", length > 0 ? length : 1, folder, name);
        const bool may_run = written < PATH_MAX && access(path, X_OK) == 0;
        if (may_run && stat(path, &about) == 0 && S_ISREG(about.st_mode))
            return 0;
        if (may_run || (written < PATH_MAX && errno == EACCES))
            why = EACCES; /* of a folder, too, as in execve */
        at += length;
        if (*at == '\0')
            return why;
    }
}
/* mpirun and its like, as mpiexec.hydra: gyre-mpi before them would do nothing for the ranks. */
static bool is_launcher(const char *program)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "srun"};
    const char *slash = strrchr(program, '/');
    const char *name = slash != NULL ? slash + 1 : program;
    const size_t length = strcspn(name, ".");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (length == strlen(names[i]) && strncmp(name, names[i], length) == 0)
            return true;
    return false;
}
/* The folder of the libgyre-mpi, next to that of this program. */
static void find_libraries(char folder[PATH_MAX])
{
    char self[PATH_MAX];
    char path[PATH_MAX + sizeof("/" GYRE_MPI_LIBRARIES)];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    snprintf(path, sizeof(path), "%s/" GYRE_MPI_LIBRARIES, self);
    if (slash == NULL || realpath(path, folder) == NULL)
        fail(RC_REFUSED, "there is no folder %s", path);
}

/* ---- which library it gets --------------------------------------------------------------------------- */

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}
static const char *const kinds[] = {"openmpi", "mpich"};
enum { OPEN_MPI, MPICH, KINDS, UNKNOWN = KINDS, NOBODY };
/* No MPI library is linked, as with Python: that of the launcher. UNKNOWN: srun, of a kind that says
 * nothing. */
static int launcher(void)
{
    if (is_set("OMPI_COMM_WORLD_SIZE"))
        return OPEN_MPI;
    if (is_set("PMI_RANK"))
        return MPICH;
    if (is_set("PMIX_RANK")) /* srun --mpi=pmix, prun */
        return OPEN_MPI;
    return is_set("SLURM_PROCID") ? UNKNOWN : NOBODY;
}
/* The name by which Debian has the MPICH library. Upstream, and those of its ABI as Intel MPI, have the
 * other. */
static const char *common_name(const char *name)
{
    return strcmp(name, "libmpi.so.12") == 0 ? "libmpich.so.12" : name;
}
/* Whether the library at `path` was built for one that the program uses. */
static bool is_for(const char *path, const names_t *built_for, const names_t *used, const char *interpreter)
{
    for (int i = 0; i < used->count; i++)
        for (int k = 0; k < built_for->count; k++) {
            const char *name = built_for->of[k];
            if (strcmp(name, used->of[i]) == 0)
                return true;
            if (strcmp(common_name(name), common_name(used->of[i])) != 0)
                continue;
            /* It brings the other one along, of which no function is called: the program's is found first. */
            names_t unused = {0};
            if (interpreter == NULL || list_needed(interpreter, path, &unused))
                return true;
            fail(RC_REFUSED,
                 "the program uses %s; %s, for MPI libraries of the same ABI, needs %s, which is not here: "
                 "build Gyre with the program's MPI: make mpi MPICC_mpich=.../mpicc",
                 used->of[i], path, name);
        }
    return false;
}
/* path: of the libgyre-mpi for the program. False: there is none, or srun started it and there are
 * several. */
static bool choose(const char *folder, const names_t *used, const char *interpreter, char *path, size_t size)
{
    const int by = launcher();
    int usable = -1;
    for (int k = 0; k < KINDS; k++) {
        names_t built_for = {0};
        const char *none = NULL;
        snprintf(path, size, "%s/libgyre-mpi-%s.so", folder, kinds[k]);
        if (read_file(path, &built_for, &none) == NOT_ELF)
            continue;
        if (used->count == 0 ? k == by : is_for(path, &built_for, used, interpreter))
            return true;
        usable = usable < 0 ? k : KINDS;
    }
    if (used->count > 0 || by != UNKNOWN || usable < 0 || usable == KINDS)
        return false;
    snprintf(path, size, "%s/libgyre-mpi-%s.so", folder, kinds[usable]);
    return true;
}
static void preload(const char *path)
{
    const char *before = getenv("LD_PRELOAD");
    char *value = NULL;
    if (strpbrk(path, " :") != NULL)
        fail(RC_REFUSED, "%s has a space or a colon in its path, where LD_PRELOAD ends a name: move Gyre",
             path);
    if (asprintf(&value, before != NULL && before[0] != '\0' ? "%s:%s" : "%s", path, before) < 0 ||
        setenv("LD_PRELOAD", value, 1) != 0)
        fail(RC_REFUSED, "no memory");
    free(value);
}

int main(int count, char **arguments)
{
    const char *program = count > 1 ? arguments[1] : "";
    char path[PATH_MAX];
    char folder[PATH_MAX];
    char library[PATH_MAX + NAME_MOST];
    const char *interpreter = NULL;
    names_t used = {0};
    if (strcmp(program, "-h") == 0 || strcmp(program, "--help") == 0) {
        puts("gyre-mpi PROGRAM [ARG]...: runs an MPI program with its collectives on Gyre: mpirun -n 4 "
             "gyre-mpi PROGRAM.\n"
             "It finds out which MPI library the program uses, and preloads the libgyre-mpi that is built "
             "for it.\n\n"
             "  -h, --help     this text\n"
             "      --version  the version");
        return 0;
    }
    if (strcmp(program, "--version") == 0) {
        puts("gyre-mpi " GYRE_VERSION);
        return 0;
    }
    if (program[0] == '\0' || program[0] == '-')
        fail(RC_REFUSED, "usage: mpirun -n RANKS gyre-mpi PROGRAM [ARG]...");
    if (is_launcher(program))
        fail(RC_REFUSED, "%s is a launcher: write gyre-mpi after it: %s -n RANKS gyre-mpi PROGRAM [ARG]...",
             program, program);
    const int why = find_program(program, path);
    if (why != 0)
        fail_to_run(program, why);
    find_libraries(folder);
    const kind_t kind = read_file(path, &used, &interpreter);
    if (kind == STATIC)
        fail(RC_REFUSED,
             "%s is statically linked: nothing can be preloaded; link it dynamically, or start it without "
             "gyre-mpi",
             program);
    if (kind == OTHER_MACHINE)
        fail(RC_REFUSED, "%s is built for another kind of machine: start it without gyre-mpi", program);
    if ((kind == DYNAMIC || kind == OWN_MPI) && used.count == 0)
        list_needed(interpreter, path, &used);
    if (kind == OWN_MPI && used.count == 0)
        fail(
            RC_REFUSED,
            "%s has an MPI library in it: nothing can be preloaded for that; link it with the shared one, or "
            "start it without gyre-mpi",
            program);
    if (choose(folder, &used, interpreter, library, sizeof(library)))
        preload(library);
    else if (used.count > 0)
        fail(RC_REFUSED,
             "%s uses %s, and no library in %s is built for it: build Gyre with the compiler of that "
             "library: make mpi MPICC_openmpi=.../mpicc, or MPICC_mpich=",
             program, used.of[0], folder);
    else if (launcher() == UNKNOWN)
        fail(RC_REFUSED,
             "%s is not linked with MPI, and srun does not say for which MPI it started it: use srun "
             "--mpi=pmix for Open MPI or --mpi=pmi2 for MPICH, or instead of gyre-mpi env "
             "LD_PRELOAD=%s/libgyre-mpi-openmpi.so, or libgyre-mpi-mpich.so",
             program, folder);
    else if (launcher() != NOBODY)
        fail(RC_REFUSED, "%s is not linked with MPI, and %s has no libgyre-mpi for this launcher", program,
             folder);
    /* Else neither MPI nor an MPI launcher: there is nothing to do. */
    execvp(program, arguments + 1);
    fail_to_run(program, errno);
}
