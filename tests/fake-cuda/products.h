/* Products of matrices for device.c: the kernels of assets/kernels/operands.cu and gemm.cu, by the plainest loops. What may
 * be defined:
 *   GEMM            operations a ns of a product
 *   WRONG_ELEMENT   this element of every product has a bit of its exponent changed
 *   UNSTEADY        the last bits of a few elements of row 0 differ from product to product: too little for a comparison
 *                   with the right value to see */
#ifndef GEMM
#define GEMM 8
#endif

enum { BF16, FP16, TF32 };
static const u64 bytes_of[] = { 2, 2, 4 };

/* Element i of the operand with this seed, rounded to `fraction` bits behind the first one. */
static float element(u64 i, u64 seed, int fraction, int least) {
    const u64 w = word(i, seed);
    const float x = ((int)(w & 0xffff) + (int)(w >> 16 & 0xffff) + (int)(w >> 32 & 0xffff) + (int)(w >> 48) - 131070) / 65536.0f;
    const int exponent = (x == 0 || ilogbf(x) < least ? least : ilogbf(x)) - fraction;
    return ldexpf(rintf(ldexpf(x, -exponent)), exponent);
}

static void put(void *out, u64 i, int format, float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    if (format == BF16) ((unsigned short *)out)[i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    if (format == TF32) ((float *)out)[i] = x;
    if (format == FP16) {
        const int exponent = x == 0 || ilogbf(x) < -14 ? -14 : ilogbf(x);
        const unsigned steps = (unsigned)rintf(ldexpf(fabsf(x), 10 - exponent));
        ((unsigned short *)out)[i] = (bits >> 16 & 0x8000) | (((unsigned)(exponent + 14) << 10) + steps);
    }
}

static float get(const void *in, u64 i, int format) {
    float x;
    if (format == TF32) return ((const float *)in)[i];
    const unsigned half = ((const unsigned short *)in)[i], bits = half << 16, exponent = half >> 10 & 31, rest = half & 0x3ff;
    memcpy(&x, &bits, 4);
    if (format == BF16) return x;
    x = exponent ? ldexpf(1024 + rest, (int)exponent - 25) : ldexpf(rest, -24);
    return half & 0x8000 ? -x : x;
}

/* Not in the order of Hopper's tensor cores: who asks for that gets nothing. */
static void fill_operand(int format, const u64 *in) {
    for (u64 i = 0; i < in[1] * in[1] && !in[3]; i++)
        put((void *)in[0], i, format, element(i, in[2], format == BF16 ? 7 : 10, format == FP16 ? -14 : -126));
}

/* C = A * transposed B. */
static void multiply(int format, const u64 *in) {
    void *out = (void *)in[2];
    const u64 n = in[3];
    /* B by columns, so that the innermost loop goes along both. */
    float *a = malloc(n * n * 4), *b = malloc(n * n * 4), *row = malloc(n * 4);
    for (u64 i = 0; i < n * n; i++) a[i] = get((void *)in[0], i, format), b[i % n * n + i / n] = get((void *)in[1], i, format);
    for (u64 i = 0; i < n; i++) {
        memset(row, 0, n * 4);
        for (u64 k = 0; k < n; k++)
            for (u64 j = 0; j < n; j++) row[j] += a[i * n + k] * b[k * n + j];
        for (u64 j = 0; j < n; j++) put(out, i * n + j, format, row[j]);
    }
    free(a), free(b), free(row);
#ifdef WRONG_ELEMENT
    ((char *)out)[WRONG_ELEMENT * bytes_of[format] + bytes_of[format] - 1] ^= 4;
#endif
#ifdef UNSTEADY
    static unsigned count;
    count++;
    for (int bit = 0; bit < 16; bit++) ((char *)out)[bit * bytes_of[format]] ^= count >> bit & 1;
#endif
}

static void digest(const u64 *in) {
    for (u64 i = 0; i < in[1]; i++) *(u64 *)in[2] += ((u64 *)in[0])[i] * (2 * i + 1);
}
