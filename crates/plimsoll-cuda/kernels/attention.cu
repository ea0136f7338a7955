// Attention of tokens within shifted windows: which token is where, the sums of exponentials, and the results.
#include "attention.cuh"

struct WindowTokens {
    WindowToken* tokens;     // [window][token]
    u32 extent[3];
    u32 window[3];
    u32 shift[3];
    u32 table_window[3];
    u32 counts[3];           // of windows
    u32 count;
};

// A thread for each token of the padded grid.
KERNEL(window_tokens, WindowTokens) {
    const u32 i = element();
    if (i >= p.count) return;
    const u32 tokens = p.window[0] * p.window[1] * p.window[2], token = i % tokens, window = i / tokens;
    const u32 at[3] = {window / (p.counts[1] * p.counts[2]), window / p.counts[2] % p.counts[1], window % p.counts[2]};
    const u32 within[3] = {token / (p.window[1] * p.window[2]), token / p.window[2] % p.window[1], token % p.window[2]};
    u32 place[3], padded[3], region = 0;
    bool inside = true;
#pragma unroll
    for (u32 axis = 0; axis < 3; axis++) {
        padded[axis] = p.counts[axis] * p.window[axis];
        const u32 rolled = at[axis] * p.window[axis] + within[axis], left = padded[axis] - rolled;
        // Before the last window, in it, and what came there from the other end.
        const u32 part = p.shift[axis] == 0 || left > p.window[axis] ? 0 : left > p.shift[axis] ? 1 : 2;
        region = 3 * region + part;
        place[axis] = (rolled + p.shift[axis]) % padded[axis];
        inside = inside && place[axis] < p.extent[axis];
    }
    const u32 in_padded = (place[0] * padded[1] + place[1]) * padded[2] + place[2];
    // The voxels of the grid that come before it.
    const u32 rows = place[1] < p.extent[1] ? place[1] * p.extent[2] + min(place[2], p.extent[2]) : p.extent[1] * p.extent[2];
    const u32 before = place[0] < p.extent[0] ? place[0] * p.extent[1] * p.extent[2] + rows
                                              : p.extent[0] * p.extent[1] * p.extent[2];
    // Coordinates are those of the table's window, also in windows that are clipped to a smaller grid.
    const u32 w = token % p.table_window[2], h = token / p.table_window[2] % p.table_window[1];
    const u32 d = token / p.table_window[2] / p.table_window[1];
    const u32 code = (d * (2 * p.table_window[1] - 1) + h) * (2 * p.table_window[2] - 1) + w;
    p.tokens[i].voxel = inside ? before : PADDING_TOKENS + (in_padded - before);
    p.tokens[i].position = code << 5 | region;
}

// A thread for each query.
template <class T>
__device__ inline void attention_logs(const Attention& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Subject s(p, i);
    const WindowToken query = s.tokens[s.token];
    if (query.voxel >= PADDING_TOKENS) return;
    float top = __uint_as_float(0xff800000u), sum = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < p.window_tokens; first += KEY_TILE) {
        float logits[KEY_TILE];
        logits_of<T>(p, s, query, first, logits);
        float next = top, of_tile = 0.0f;
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) next = fmaxf(next, logits[k]);
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) of_tile += expf(logits[k] - next);
        sum = fmaf(sum, expf(top - next), of_tile);
        top = next;
    }
    p.logs[row_of(p, s, query)] = top + logf(sum);
}
BY_STORAGE(attention_logs, Attention)

// A thread for each query and chunk of its result.
template <class T>
__device__ inline void attention(const Attention& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Subject s(p, i);
    const WindowToken query = s.tokens[s.token];
    if (query.voxel >= PADDING_TOKENS) return;
    const float log = p.logs[row_of(p, s, query)];
    const u32 begin = s.chunk * CHANNEL_CHUNK, last = p.head_channels - 1;
    float result[CHANNEL_CHUNK];
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) result[c] = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < p.window_tokens; first += KEY_TILE) {
        float logits[KEY_TILE], factors[KEY_TILE];
        logits_of<T>(p, s, query, first, logits);
        factors_of(p, s, s.token, first, factors);
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) factors[k] *= expf(logits[k] - log);
        add_tile<T>(p, s, first, VALUE, factors, result);
    }
    const u32 place = (s.sample * p.voxels + query.voxel) * p.heads * p.head_channels + s.head * p.head_channels;
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) {
        if (begin + c <= last) store((T*)p.result, place + begin + c, result[c]);
    }
}
BY_STORAGE(attention, Attention)
