// The gradients of attention: of queries, of keys and values, and of the table of biases (Dao et al. 2022, arXiv:2205.14135, appendix B.4).
#include "attention.cuh"

// The gradient of a query's result.
template <class T>
__device__ inline TokenVector<T> upstream_of(const Attention& p, const Subject& s, const WindowToken& token) {
    const u32 channels = p.heads * p.head_channels;
    TokenVector<T> vector = {0, 0};
    if (token.voxel < PADDING_TOKENS) {
        vector.stored = (const T*)p.upstream + ((s.sample * p.voxels + token.voxel) * channels + s.head * p.head_channels);
    }
    return vector;
}

template <class T>
__device__ inline float product(const TokenVector<T>& a, const TokenVector<T>& b, u32 channels) {
    float sum = 0.0f;
#pragma unroll 1
    for (u32 c = 0; c < channels; c++) sum = fmaf(a.at(c), b.at(c), sum);
    return sum;
}

// A thread for each query: the sum over keys of its probabilities times their gradients.
template <class T>
__device__ inline void attention_deltas(const Attention& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Subject s(p, i);
    const WindowToken query = s.tokens[s.token];
    if (query.voxel >= PADDING_TOKENS) return;
    const float log = p.logs[row_of(p, s, query)];
    float delta = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < p.window_tokens; first += KEY_TILE) {
        TokenVector<T> values[KEY_TILE];
        float logits[KEY_TILE], factors[KEY_TILE], slopes[KEY_TILE], sum = 0.0f;
        logits_of<T>(p, s, query, first, logits);
        factors_of(p, s, s.token, first, factors);
        vectors_of(p, s, first, VALUE, values);
        products(upstream_of<T>(p, s, query), values, p.head_channels, slopes);
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) sum = fmaf(expf(logits[k] - log), factors[k] * slopes[k], sum);
        delta += sum;
    }
    p.deltas[row_of(p, s, query)] = delta;
}
BY_STORAGE(attention_deltas, Attention)

// A thread for each query and chunk of its gradient.
template <class T>
__device__ inline void attention_query_grad(const Attention& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Subject s(p, i);
    const WindowToken query = s.tokens[s.token];
    if (query.voxel >= PADDING_TOKENS) return;
    const float log = p.logs[row_of(p, s, query)], delta = p.deltas[row_of(p, s, query)];
    const u32 begin = s.chunk * CHANNEL_CHUNK, last = p.head_channels - 1;
    float result[CHANNEL_CHUNK];
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) result[c] = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < p.window_tokens; first += KEY_TILE) {
        TokenVector<T> values[KEY_TILE];
        float logits[KEY_TILE], factors[KEY_TILE], slopes[KEY_TILE];
        logits_of<T>(p, s, query, first, logits);
        factors_of(p, s, s.token, first, factors);
        vectors_of(p, s, first, VALUE, values);
        products(upstream_of<T>(p, s, query), values, p.head_channels, slopes);
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) slopes[k] = expf(logits[k] - log) * fmaf(factors[k], slopes[k], -delta);
        add_tile<T>(p, s, first, KEY, slopes, result);
    }
    const u32 place = (s.sample * p.voxels + query.voxel) * 3 * p.heads * p.head_channels + s.head * p.head_channels;
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) {
        if (begin + c <= last) store((T*)p.result, place + begin + c, p.scale * result[c]);
    }
}
BY_STORAGE(attention_query_grad, Attention)

// The probability of a key, what dropout multiplies it with, and the gradient of its logit, where the two products are known.
struct MatrixEntry {
    float probability, factor, slope;
    __device__ MatrixEntry(const Attention& p, const Subject& s, u32 query_token, u32 key_token, float of_logit, float of_slope) {
        const WindowToken query = s.tokens[query_token];
        const u32 row = row_of(p, s, query);
        probability = expf(logit(p, s, query, s.tokens[key_token], of_logit) - p.logs[row]);
        factor = p.noise ? factor_of(p, random_of(p, s, query_token, key_token / 4), key_token) : 1.0f;
        slope = probability * fmaf(factor, of_slope, -p.deltas[row]);
    }
};

// A thread for each key and chunk of the gradients of it and of its value.
template <class T>
__device__ inline void attention_key_grad(const Attention& p) {
    const u32 i = element();
    if (i >= p.count) return;
    const Subject s(p, i);
    const WindowToken key = s.tokens[s.token];
    if (key.voxel >= PADDING_TOKENS && !p.padding) return;
    const u32 begin = s.chunk * CHANNEL_CHUNK, last = p.head_channels - 1;
    float keys[CHANNEL_CHUNK], values[CHANNEL_CHUNK];
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) {
        keys[c] = 0.0f;
        values[c] = 0.0f;
    }
#pragma unroll 1
    for (u32 first = 0; first < p.window_tokens; first += KEY_TILE) {
        float of_logits[KEY_TILE], of_slopes[KEY_TILE], weights[KEY_TILE], slopes[KEY_TILE];
        TokenVector<T> queries[KEY_TILE], upstream[KEY_TILE];
        vectors_of(p, s, first, QUERY, queries);
        products(vector_of<T>(p, s, key, KEY), queries, p.head_channels, of_logits);
#pragma unroll
        for (u32 k = 0; k < KEY_TILE; k++) upstream[k] = upstream_of<T>(p, s, token_of(p, s, first + k));
        products(vector_of<T>(p, s, key, VALUE), upstream, p.head_channels, of_slopes);
#pragma unroll 1
        for (u32 k = 0; k < KEY_TILE; k++) {
            weights[k] = 0.0f;
            slopes[k] = 0.0f;
            // Tokens of the padding are no queries.
            if (first + k >= p.window_tokens || s.tokens[first + k].voxel >= PADDING_TOKENS) continue;
            const MatrixEntry entry(p, s, first + k, s.token, of_logits[k], of_slopes[k]);
            weights[k] = entry.probability * entry.factor;
            slopes[k] = entry.slope;
        }
        add_tile<T>(p, s, first, QUERY, slopes, keys);
        float sums[CHANNEL_CHUNK];
#pragma unroll
        for (u32 c = 0; c < CHANNEL_CHUNK; c++) sums[c] = 0.0f;
#pragma unroll 1
        for (u32 k = 0; k < KEY_TILE; k++) upstream_of<T>(p, s, token_of(p, s, first + k)).add(weights[k], begin, last, sums);
#pragma unroll
        for (u32 c = 0; c < CHANNEL_CHUNK; c++) values[c] += sums[c];
    }
    const u32 channels = p.heads * p.head_channels, channel = s.head * p.head_channels + begin;
#pragma unroll
    for (u32 c = 0; c < CHANNEL_CHUNK; c++) {
        if (begin + c > last) continue;
        if (key.voxel < PADDING_TOKENS) {
            const u32 place = (s.sample * p.voxels + key.voxel) * 3 * channels + channel + c;
            store((T*)p.result, place + channels, p.scale * keys[c]);
            store((T*)p.result, place + 2 * channels, values[c]);
        } else {
            const u32 place = (s.sample * p.paddings + (key.voxel - PADDING_TOKENS)) * 2 * channels + channel + c;
            p.padding[place] = p.scale * keys[c];
            p.padding[place + channels] = values[c];
        }
    }
}
BY_STORAGE(attention_key_grad, Attention)

struct AttentionTableGrad {
    Attention attention;
    float* parts;           // [part][row][head]
    u32 table_window[3];
    u32 length;             // windows of a part, of those of all samples
    u32 all_windows;
    u32 unused;
};

// A thread for each part of the windows, row of the table and head: all pairs of a window with that relative position.
template <class T>
__device__ inline void attention_table_grad(const AttentionTableGrad& of) {
    const Attention& p = of.attention;
    const u32 i = element();
    if (i >= p.count) return;
    const u32 depths = of.table_window[0], heights = of.table_window[1], widths = of.table_window[2];
    const u32 rows = (2 * depths - 1) * (2 * heights - 1) * (2 * widths - 1);
    const u32 head = i % p.heads, row = i / p.heads % rows, part = i / p.heads / rows;
    const u32 w = row % (2 * widths - 1), h = row / (2 * widths - 1) % (2 * heights - 1);
    const u32 d = row / (2 * widths - 1) / (2 * heights - 1);
    float total = 0.0f;
#pragma unroll 1
    for (u32 window = part * of.length; window < min((part + 1) * of.length, of.all_windows); window++) {
        Subject s(p, 0);
        s.head = head;
        s.window = window % p.windows;
        s.sample = window / p.windows;
        s.tokens = p.tokens + s.window * p.window_tokens;
        float run = 0.0f, sum = 0.0f;
#pragma unroll 1
        for (u32 query = 0; query < p.window_tokens; query++) {
            if (query % RUN == 0) {
                sum += run;
                run = 0.0f;
            }
            // The key is as far before the query as the row says, or nowhere.
            const u32 key_w = query % widths + (widths - 1) - w, key_h = query / widths % heights + (heights - 1) - h;
            const u32 key_d = query / widths / heights + (depths - 1) - d;
            const u32 key = (key_d * heights + key_h) * widths + key_w;
            if (key_w >= widths || key_h >= heights || key_d >= depths || key >= p.window_tokens) continue;
            const WindowToken own = s.tokens[query], other = s.tokens[key];
            if (own.voxel >= PADDING_TOKENS) continue;
            const TokenVector<T> of_key = vector_of<T>(p, s, other, KEY), value = vector_of<T>(p, s, other, VALUE);
            const float of_logit = product(vector_of<T>(p, s, own, QUERY), of_key, p.head_channels);
            run += MatrixEntry(p, s, query, key, of_logit, product(upstream_of<T>(p, s, own), value, p.head_channels)).slope;
        }
        total += sum + run;
    }
    of.parts[i] = total;
}
BY_STORAGE(attention_table_grad, AttentionTableGrad)
