/* Elementwise functions over blocks of memory, and the loop that runs a list of them.
 *
 * Each function takes n elements of its operands and writes n elements.  The loop takes one block after the other
 * through the whole list, so that what lies between two functions stays in the first-level cache.
 *
 * Products and sums are rounded one by one: the module is compiled without contraction, and a function that torch's
 * kernel computes by a fused product says so.
 */
#ifndef AUTOGRAD_OPT_BLOCKS_H
#define AUTOGRAD_OPT_BLOCKS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONED
#endif

/* Before a loop: a result may take the place of an operand, element by element, and no other overlap occurs. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

enum { BLOCK = 512 };

/* The functions, in the order of the table below; `plans/elementwise.py` has them by the same names. */
#define FUNCTIONS(X) \
    X(copy, a[i]) \
    X(neg, -a[i]) \
    X(abs, FABS(a[i])) \
    X(sgn, (T)((a[i] > 0) - (a[i] < 0))) \
    X(sqrt, SQRT(a[i])) \
    X(rsqrt, 1 / SQRT(a[i])) \
    X(reciprocal, 1 / a[i]) \
    X(relu, a[i] < 0 ? 0 : a[i]) \
    X(relu_unsigned, a[i] > 0 || a[i] != a[i] ? a[i] : 0) \
    X(square, a[i] * a[i]) \
    X(cube, a[i] * a[i] * a[i]) \
    X(inverse_square, 1 / (a[i] * a[i])) \
    X(sigmoid_of_exp, 1 / (1 + a[i])) \
    X(floor, FLOOR(a[i])) \
    X(ceil, CEIL(a[i])) \
    X(trunc, TRUNC(a[i])) \
    X(logical_not, (T)(a[i] == 0)) \
    X(add, a[i] + b[i]) \
    X(sub, a[i] - b[i]) \
    X(mul, a[i] * b[i]) \
    X(div, a[i] / b[i]) \
    X(add_scaled, FMA(b[i], v, a[i])) \
    X(sub_scaled, FMA(b[i], -v, a[i])) \
    X(maximum, a[i] != a[i] ? a[i] : b[i] != b[i] ? b[i] : a[i] > b[i] ? a[i] : b[i]) \
    X(minimum, a[i] != a[i] ? a[i] : b[i] != b[i] ? b[i] : a[i] < b[i] ? a[i] : b[i]) \
    X(eq, (T)(a[i] == b[i])) \
    X(ne, (T)(a[i] != b[i])) \
    X(lt, (T)(a[i] < b[i])) \
    X(le, (T)(a[i] <= b[i])) \
    X(gt, (T)(a[i] > b[i])) \
    X(ge, (T)(a[i] >= b[i])) \
    X(logical_and, (T)(a[i] != 0 && b[i] != 0)) \
    X(logical_or, (T)(a[i] != 0 || b[i] != 0)) \
    X(threshold_backward, b[i] <= v ? 0 : a[i]) \
    X(tanh_backward, a[i] * (1 - b[i] * b[i])) \
    X(tanh_backward_fused, a[i] * FMA(-b[i], b[i], (T)1)) \
    X(sigmoid_backward, a[i] * (1 - b[i]) * b[i]) \
    X(where, a[i] != 0 ? b[i] : c[i]) \
    X(addcmul, a[i] + v * b[i] * c[i]) \
    X(addcmul_fused, FMA(v * b[i], c[i], a[i])) \
    X(addcdiv, a[i] + v * b[i] / c[i])

/* Functions of a vector mathematics library, found in torch's own libraries when this module is set up. */
#define VECTOR_FUNCTIONS(X) \
    X(exp) X(vector_sqrt) X(sin) X(cos) X(tan) X(tanh) X(log) X(log2) X(log10) X(erf) X(erfc) X(erfinv) X(atan) X(asin) X(acos)

#define NAME_OF(name, ...) name##_code,
enum Code { FUNCTIONS(NAME_OF) VECTOR_FUNCTIONS(NAME_OF) CODES };
#undef NAME_OF

#define DEFINE(name, value) \
    CLONED static void PASTE(name)(T *d, const T *a, const T *b, const T *c, T v, ptrdiff_t n) { \
        (void)b; (void)c; (void)v; \
        INDEPENDENT \
        for (ptrdiff_t i = 0; i < n; i++) d[i] = (value); \
    }

/* float */
#define T float
#define PASTE(name) name##_float
#define FABS(x) fabsf(x)
#define SQRT(x) sqrtf(x)
#define FLOOR(x) floorf(x)
#define CEIL(x) ceilf(x)
#define TRUNC(x) truncf(x)
#define FMA(x, y, z) fmaf(x, y, z)
FUNCTIONS(DEFINE)
#undef T
#undef PASTE
#undef FABS
#undef SQRT
#undef FLOOR
#undef CEIL
#undef TRUNC
#undef FMA

/* double */
#define T double
#define PASTE(name) name##_double
#define FABS(x) fabs(x)
#define SQRT(x) sqrt(x)
#define FLOOR(x) floor(x)
#define CEIL(x) ceil(x)
#define TRUNC(x) trunc(x)
#define FMA(x, y, z) fma(x, y, z)
FUNCTIONS(DEFINE)
#undef T
#undef PASTE
#undef FABS
#undef SQRT
#undef FLOOR
#undef CEIL
#undef TRUNC
#undef FMA

typedef void (*float_function)(float *, const float *, const float *, const float *, float, ptrdiff_t);
typedef void (*double_function)(double *, const double *, const double *, const double *, double, ptrdiff_t);
typedef void (*vector_float)(int, const float *, float *, long long);
typedef void (*vector_double)(int, const double *, double *, long long);

#define ENTRY_FLOAT(name, ...) name##_float,
#define ENTRY_DOUBLE(name, ...) name##_double,
#define NO_ENTRY(name) NULL,
static const float_function float_functions[CODES] = {FUNCTIONS(ENTRY_FLOAT) VECTOR_FUNCTIONS(NO_ENTRY)};
static const double_function double_functions[CODES] = {FUNCTIONS(ENTRY_DOUBLE) VECTOR_FUNCTIONS(NO_ENTRY)};
#define WORD(name, ...) #name,
static const char *const code_names[CODES] = {FUNCTIONS(WORD) VECTOR_FUNCTIONS(WORD)};
static vector_float vector_floats[CODES];
static vector_double vector_doubles[CODES];
/* high accuracy, no flush to zero, errors ignored: as torch calls them */
static const long long VECTOR_MODE = 0x2 | 0x140000 | 0x100;

typedef struct {
    int code, to, a, b, c;       /* places; -1 where there is no such operand */
    double value;
} Step;

enum Source { SCRATCH, NUMBER, WHOLE, SINGLE, STRIDED, WHOLE_BOOL, SINGLE_BOOL, STRIDED_BOOL, RESULT, RESULT_BOOL };

enum { MOST_AXES = 8 };

typedef struct {
    int source;                  /* one of Source */
    int axes;                    /* of a strided operand, with its sizes and strides in elements */
    int64_t size[MOST_AXES], stride[MOST_AXES];
    char *data;                  /* of an operand or a result */
    char *block;                 /* where the current block of it is */
} Place;

/* Copy elements `start` to `start + n` of a strided operand, in the order of the result's axes. */
static void gather(const Place *p, char *to, int64_t start, ptrdiff_t n, int width, int bytes) {
    int64_t index[MOST_AXES], offset = 0, rest = start;
    for (int k = p->axes - 1; k >= 0; k--) {
        index[k] = rest % p->size[k];
        rest /= p->size[k];
        offset += index[k] * p->stride[k];
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        if (bytes) {
            const int on = p->data[offset] != 0;
            if (width == 4) ((float *)to)[i] = (float)on;
            else ((double *)to)[i] = (double)on;
        }
        else if (width == 4) ((float *)to)[i] = ((const float *)p->data)[offset];
        else ((double *)to)[i] = ((const double *)p->data)[offset];
        for (int k = p->axes - 1; k >= 0; k--) {
            offset += p->stride[k];
            if (++index[k] < p->size[k]) break;
            offset -= p->size[k] * p->stride[k];
            index[k] = 0;
        }
    }
}

/* Write n times one value. */
CLONED static void fill(char *to, double value, ptrdiff_t n, int width) {
    if (width == 4) for (ptrdiff_t i = 0; i < n; i++) ((float *)to)[i] = (float)value;
    else for (ptrdiff_t i = 0; i < n; i++) ((double *)to)[i] = value;
}

/* The value that an operand of one element has. */
static double single(const Place *p, int width) {
    if (p->source == SINGLE_BOOL) return *p->data != 0;
    return width == 4 ? *(const float *)p->data : *(const double *)p->data;
}

/* Make the block of each operand ready. */
static void enter_block(Place *places, int count, int64_t start, ptrdiff_t n, int width) {
    for (int k = 0; k < count; k++) {
        Place *p = places + k;
        switch (p->source) {
        case WHOLE: case RESULT:
            p->block = p->data + start * width;
            break;
        case STRIDED:
            gather(p, p->block, start, n, width, 0);
            break;
        case STRIDED_BOOL:
            gather(p, p->block, start, n, width, 1);
            break;
        case WHOLE_BOOL:
            for (ptrdiff_t i = 0; i < n; i++) {
                if (width == 4) ((float *)p->block)[i] = (float)(p->data[start + i] != 0);
                else ((double *)p->block)[i] = (double)(p->data[start + i] != 0);
            }
            break;
        case SINGLE: case SINGLE_BOOL:
            if (start == 0) fill(p->block, single(p, width), n, width);
            break;
        default:
            break;
        }
    }
}

static void leave_block(Place *places, int count, int64_t start, ptrdiff_t n, int width) {
    for (int k = 0; k < count; k++) {
        if (places[k].source != RESULT_BOOL) continue;
        for (ptrdiff_t i = 0; i < n; i++) {
            places[k].data[start + i] = width == 4 ? ((float *)places[k].block)[i] != 0 : ((double *)places[k].block)[i] != 0;
        }
    }
}

static inline void *at(Place *places, int k) { return k < 0 ? NULL : places[k].block; }

/* Run every step over the elements from `begin` to `end`. */
static void run_blocks(const Step *steps, int step_count, Place *places, int place_count, int64_t total, int width) {
    for (int64_t start = 0; start < total; start += BLOCK) {
        const ptrdiff_t n = total - start < BLOCK ? (ptrdiff_t)(total - start) : BLOCK;
        enter_block(places, place_count, start, n, width);
        for (int s = 0; s < step_count; s++) {
            const Step *p = steps + s;
            if (width == 4) {
                float *to = (float *)at(places, p->to);
                const float *a = (const float *)at(places, p->a);
                if (float_functions[p->code] != NULL)
                    float_functions[p->code](to, a, (const float *)at(places, p->b), (const float *)at(places, p->c),
                                             (float)p->value, n);
                else vector_floats[p->code]((int)n, a, to, VECTOR_MODE);
            }
            else {
                double *to = (double *)at(places, p->to);
                const double *a = (const double *)at(places, p->a);
                if (double_functions[p->code] != NULL)
                    double_functions[p->code](to, a, (const double *)at(places, p->b), (const double *)at(places, p->c),
                                              p->value, n);
                else vector_doubles[p->code]((int)n, a, to, VECTOR_MODE);
            }
        }
        leave_block(places, place_count, start, n, width);
    }
}

#endif
