/* What a test wants to happen, a line each, in the file named by GPUWATCH_FAKE_CUDA; and the journal beside it. */
#include "fake.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct device machine[MAX_DEVICES];
int machine_count;

/* `rule FUNCTION DEVICE ACTION VALUE`, `wrong WHAT DEVICE VALUE`, `speed WAY DEVICE VALUE`, `apart DEVICE DEVICE`. */
static struct rule {
    char kind[16], what[48], device[64], action[64];
    double value;
} rules[MAX_RULES];
static int rule_count, journal_fd = -1;

bool script_read(void) {
    static bool tried, done;
    if (tried) return done;
    tried = true;
    const char *path = getenv("GPUWATCH_FAKE_CUDA");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return false;
    char line[512], name[PATH_MAX];
    while (fgets(line, sizeof line, file)) {
        struct rule rule = {0};
        struct device device = {0};
        if (sscanf(line, "device %63s %zu", device.uuid, &device.free) == 2 && machine_count < MAX_DEVICES)
            machine[machine_count++] = device;
        else if (sscanf(line, "%15s %47s %63s %63s %lf", rule.kind, rule.what, rule.device, rule.action, &rule.value) >= 3 &&
                 rule_count < MAX_RULES)
            rules[rule_count++] = rule;
        else
            fprintf(stderr, "fake CUDA: cannot read %s", line);
    }
    fclose(file);
    snprintf(name, sizeof name, "%s.journal", path);
    journal_fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return done = true;
}

void journal(const char *kind, const char *format, ...) {
    char text[512];
    int length = snprintf(text, sizeof text, "%d %s ", getpid(), kind);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(text + length, sizeof text - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof text - 2) length = sizeof text - 2;
    text[length++] = '\n';
    if (journal_fd >= 0 && write(journal_fd, text, (size_t)length) != length) abort();
}

/* Whether a device is one of those this process may see: rules without a context in sight go by that. */
bool script_is_about(const char *uuid) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return !strcmp(uuid, "*") || (visible && strstr(visible, uuid));
}

static bool fits(const struct rule *rule, const char *kind, const char *what, const struct device *device) {
    return !strcmp(rule->kind, kind) && !strcmp(rule->what, what) &&
           (!device || !strcmp(rule->device, "*") || !strcmp(rule->device, device->uuid));
}

CUresult script_obey(const char *function) {
    for (const struct rule *rule = rules; rule < rules + rule_count; rule++) {
        if (!fits(rule, "rule", function, NULL) || !script_is_about(rule->device)) continue;
        if (!strcmp(rule->action, "crash")) raise(SIGSEGV);
        if (!strcmp(rule->action, "delay")) usleep((useconds_t)(rule->value * 1e6));
        /* Like a wedged driver it does not care for signals; it ends with the test, which removes the script. */
        while (!strcmp(rule->action, "hang") && !access(getenv("GPUWATCH_FAKE_CUDA"), F_OK)) usleep(20000);
        if (!strcmp(rule->action, "error")) return (CUresult)rule->value;
    }
    return CUDA_SUCCESS;
}

static double number(const char *kind, const char *what, const struct device *device, double otherwise) {
    for (const struct rule *rule = rules; rule < rules + rule_count; rule++)
        if (fits(rule, kind, what, device)) return strtod(rule->action, NULL);
    return otherwise;
}

/* Which element comes out wrong; -1: none. */
long script_wrong(const char *what, const struct device *device) { return (long)number("wrong", what, device, -1); }

/* Bytes a second. */
double script_speed(const char *way, const struct device *device) { return number("speed", way, device, strcmp(way, "peer") ? 50e9 : 300e9); }

bool script_joined(const struct device *one, const struct device *other) {
    for (const struct rule *rule = rules; rule < rules + rule_count; rule++)
        if (!strcmp(rule->kind, "apart") && ((!strcmp(rule->what, one->uuid) && !strcmp(rule->device, other->uuid)) ||
                                             (!strcmp(rule->what, other->uuid) && !strcmp(rule->device, one->uuid))))
            return false;
    return true;
}
