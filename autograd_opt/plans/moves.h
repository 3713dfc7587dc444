/* Copies of regions of memory: rows, blocks, and turned ones, element by element where they do not lie together. */
#ifndef AUTOGRAD_OPT_MOVES_H
#define AUTOGRAD_OPT_MOVES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { REGION_AXES = 8 };

typedef struct {
    int from, to;                /* which memory */
    int axes;
    int64_t read, write;         /* where the region begins, in bytes */
    int64_t size[REGION_AXES];
    int64_t read_stride[REGION_AXES], write_stride[REGION_AXES];    /* in bytes */
} Region;

static void move_line(char *to, const char *from, int64_t n, int64_t write, int64_t read, int width) {
    if (read == width && write == width) {
        memcpy(to, from, (size_t)(n * width));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        switch (width) {
        case 4: memcpy(to + i * write, from + i * read, 4); break;
        case 8: memcpy(to + i * write, from + i * read, 8); break;
        case 1: to[i * write] = from[i * read]; break;
        default: memcpy(to + i * write, from + i * read, (size_t)width);
        }
    }
}

/* Copy one region; the last axis is the line that is copied at once. */
static void move_region(const Region *r, const char *from, char *to, int width) {
    const int last = r->axes - 1;
    int64_t index[REGION_AXES] = {0};
    from += r->read;
    to += r->write;
    for (;;) {
        int k = last - 1;
        move_line(to, from, r->size[last], r->write_stride[last], r->read_stride[last], width);
        for (; k >= 0; k--) {
            from += r->read_stride[k];
            to += r->write_stride[k];
            if (++index[k] < r->size[k]) break;
            from -= r->size[k] * r->read_stride[k];
            to -= r->size[k] * r->write_stride[k];
            index[k] = 0;
        }
        if (k < 0) return;
    }
}

/* Write an element of `width` bytes over and over. */
static void fill_memory(char *to, int64_t bytes, const char *element, int width) {
    if (bytes <= 0) return;
    memcpy(to, element, (size_t)width);
    for (int64_t done = width; done < bytes; done *= 2)
        memcpy(to + done, to, (size_t)(done < bytes - done ? done : bytes - done));
}

#endif
