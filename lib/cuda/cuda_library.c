#include "cuda/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef WEFT_CUDA_FOLDERS
#define WEFT_CUDA_FOLDERS "" /* make says where libraries are */
#endif

/* In one of the folders that make found, parted by colons. */
static void *open_beside(const char *file) {
    const char *at = WEFT_CUDA_FOLDERS;
    void *library = NULL;
    while (*at && !library) {
        char path[4096];
        size_t n = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)n, at, file);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        at += n + (at[n] == ':');
    }
    return library;
}

int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library && !(library = open_beside(file))) {
        err_system(err, "%s: cannot be opened: %s", file, dlerror());
        return err_hint(err,
                        "LD_LIBRARY_PATH names folders where libraries are looked for");
    }
    for (int i = 0; names[i]; i++) {
        void *function = dlsym(library, names[i]);
        if (!function)
            return err_system(err, "%s: has no %s: another version is needed", file,
                              names[i]);
        memcpy((char *)table + sizeof function * (size_t)i, &function, sizeof function);
    }
    return 0;
}
