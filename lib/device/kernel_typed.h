/* kernel_typed.h - the kernels for elements of type T: kernel.h includes it for each type, and
 * kernel_names.h gives them the names that end in it. */

/* y[m,n] = x[m,k] W + bias; W is [k,n], or [n,k] when wt; bias[n] may be NULL. */
void kernel_linear(int64_t m, int64_t n, int64_t k, const T *x, const T *w, bool wt,
                   const T *bias, T *y);
/* dx[m,k] = dy[m,n] W^T */
void kernel_linear_dx(int64_t m, int64_t n, int64_t k, const T *dy, const T *w, bool wt,
                      T *dx);
/* dW = x^T dy + beta dW, in W's own layout; beta = 0: what is there is not read. */
void kernel_linear_dw(int64_t m, int64_t n, int64_t k, const T *x, const T *dy, bool wt,
                      float beta, float *dw);

/* out[i,:] = table[id[i] - first, :] where 0 <= id - first < vocab, else zeros. */
void kernel_embedding(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                      int64_t first, const T *table, T *out);
/* dtable[id[i] - first, :] += dout[i,:]; deterministic for repeated ids. */
void kernel_embedding_dw(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                         int64_t first, const T *dout, float *dtable);

/* y[o,i] = x[o,i] + p[i] (p broadcast over the outer dimension); y may be x. */
void kernel_add_param(int64_t outer, int64_t inner, const T *x, const T *p, T *y);
/* dp[i] += sum over o of dy[o,i] */
void kernel_add_param_dw(int64_t outer, int64_t inner, const T *dy, float *dp);

/* y = a + b, elementwise; y may be a or b. y = value. */
void kernel_add(int64_t n, const T *a, const T *b, T *y);
void kernel_fill(int64_t n, float value, T *y);
/* y = alpha x; y may be x. */
void kernel_scale(int64_t n, float alpha, const T *x, T *y);

/* y[n] = parts times the location, by a rule, of the rows of x[parts, n], up to `faulty` of which may be
 * anything, 2 faulty < parts <= KERNEL_MOST_ROWS. suspects[parts + 1], or NULL: to each row's is added
 * of how many columns it is suspected, to the last n. */
void kernel_aggregate(enum kernel_aggregate rule, int64_t n, int parts, int faulty,
                      const T *x, T *y, int64_t *suspects);

/* Activations: y may be x; dx may be dy. */
void kernel_act(enum kernel_act act, int64_t n, const T *x, T *y);
void kernel_act_dx(enum kernel_act act, int64_t n, const T *x, const T *dy, T *dx);

/* y = cap tanh(x / cap): no number reaches the cap. */
void kernel_softcap(int64_t n, float cap, const T *x, T *y);
void kernel_softcap_dx(int64_t n, float cap, const T *x, const T *dy, T *dx);

/* y = x sigmoid(x) z, or gelu(x) z (Shazeer, GLU variants, 2020); y may be x or z. Backward dx may be
 * dy. */
void kernel_swiglu(int64_t n, const T *x, const T *z, T *y);
void kernel_swiglu_bwd(int64_t n, const T *x, const T *z, const T *dy, T *dx, T *dz);
void kernel_geglu(int64_t n, const T *x, const T *z, T *y);
void kernel_geglu_bwd(int64_t n, const T *x, const T *z, const T *dy, T *dx, T *dz);

/* Layer norm over the last dimension. stat[rows,2] = (mean, 1/std), kept for backward.
 * Split over `parts` ranks, n columns local, total = parts * n:
 * 1. moments: part[rows,2] = (local mean, local sum of squared deviations)
 * 2. all-gather of part -> moments[parts, rows, 2]
 * 3. the norm itself, which combines them (Chan, Golub, LeVeque 1979).
 * moments is NULL where rows are whole (parts = 1). */
void kernel_layernorm_moments(int64_t rows, int64_t n, const T *x, float *part);
/* beta may be NULL, and so may be its gradient: there is none. */
void kernel_layernorm(const struct kernel_layernorm *t, const float *moments, const T *x,
                      const T *gamma, const T *beta, T *y, float *stat);
/* Backward, split: sums[rows,2] = local (sum dy*gamma, sum dy*gamma*xhat), then an all-reduce, then
 * dx, which may be dy. Whole: sums is NULL. params: dgamma[n] +=, then dbeta[n] +=. */
void kernel_layernorm_bwd_sums(const struct kernel_layernorm *t, const T *x, const T *gamma,
                               const float *stat, const T *dy, float *sums);
void kernel_layernorm_bwd(const struct kernel_layernorm *t, const float *sums, const T *x,
                          const T *gamma, const float *stat, const T *dy, T *dx,
                          float *const params[2]);

/* Convolutions (struct kernel_conv): dx is written, dw += . */
void kernel_conv(const struct kernel_conv *s, const T *x, const T *w, T *y);
void kernel_conv_dx(const struct kernel_conv *s, const T *dy, const T *w, T *dx);
void kernel_conv_dw(const struct kernel_conv *s, const T *x, const T *dy, float *dw);
/* Pooling (struct kernel_pool). */
void kernel_maxpool(const struct kernel_pool *p, const T *x, T *y);
void kernel_maxpool_dx(const struct kernel_pool *p, const T *x, const T *dy, T *dx);
/* y[batch, c] = scale times the sum over places of x[batch, places, c]. */
void kernel_avgpool(int64_t batch, int64_t places, int64_t c, float scale, const T *x,
                    T *y);
void kernel_avgpool_dx(int64_t batch, int64_t places, int64_t c, float scale, const T *dy,
                       T *dx);

/* Rows of `inner` numbers: the table's `front` ones, then those of x, in each of `outer` samples.
 * Backward the other way round; dtable += . */
void kernel_prepend(int64_t outer, int64_t rows, int64_t inner, int64_t front, const T *x,
                    const T *table, T *y);
void kernel_prepend_bwd(int64_t outer, int64_t rows, int64_t inner, int64_t front,
                        const T *dy, T *dx, float *dtable);
/* y[outer, inner] = x[outer, at, inner]; backward the other rows are zeros. */
void kernel_select(int64_t outer, int64_t rows, int64_t inner, int64_t at, const T *x,
                   T *y);
void kernel_select_dx(int64_t outer, int64_t rows, int64_t inner, int64_t at, const T *dy,
                      T *dx);

/* Halos (struct kernel_halo). */
void kernel_halo_pack(const struct kernel_halo *h, int64_t rows, const T *x, T *s);
void kernel_halo_join(const struct kernel_halo *h, int64_t rows, int64_t window, const T *x,
                      const T *r, T *y);
void kernel_halo_add(const struct kernel_halo *h, int64_t rows, int64_t window, const T *d,
                     const T *r, T *dx);

/* Batch norm (struct kernel_batchnorm). */
void kernel_batchnorm_moments(const struct kernel_batchnorm *t, const T *x, float *sums,
                              float *squares);
void kernel_batchnorm_center(const struct kernel_batchnorm *t, int64_t total,
                             const float *sums, const float *all, const float *squares,
                             float *centered);
void kernel_batchnorm_stat(int64_t c, int64_t groups, int64_t total, const float *sums,
                           const float *squares, float *stat);
void kernel_batchnorm(const struct kernel_batchnorm *t, const T *x, const T *gamma,
                      const T *beta, const float *stat, T *y);
void kernel_batchnorm_bwd_sums(const struct kernel_batchnorm *t, const T *x,
                               const float *stat, const T *dy, float *sums, float *dgamma,
                               float *dbeta);
void kernel_batchnorm_bwd(const struct kernel_batchnorm *t, int64_t total, const T *x,
                          const T *gamma, const float *stat, const T *dy, const float *sums,
                          T *dx);
/* Adds scale times the sum over groups of mean and variance; p += momentum (s - p). */
void kernel_batchnorm_running(int64_t c, int64_t groups, int64_t total, float scale,
                              const float *stat, float *dmean, float *dvariance);
void kernel_running(int64_t n, float momentum, const float *s, float *p);

/* Attention (struct kernel_attention). */
void kernel_attention(const struct kernel_attention *t, const T *q, const T *k, const T *v,
                      T *o, float *lse);
void kernel_attention_bwd(const struct kernel_attention *t,
                          const struct kernel_attention_bwd *of);

/* Rotary positions (Su et al., RoFormer, 2021): in every x[b, s, h, :] the pair (i, i + dim/2) turns
 * by the angle (origin + s) base^(-2i/dim), or back by it. y may be x; dim is even and at most
 * 1024. */
void kernel_rotary(const struct kernel_rotary *r, const T *x, T *y);

/* Cross-entropy of logits[rows, n], of the vocabulary first..first+n-1, against targets of [rows].
 * lse[rows] is kept. Returns the sum of losses over the rows that count. */
double kernel_cross_entropy(int64_t rows, int64_t n, const T *logits,
                            const struct kernel_targets *target, float *lse);
/* Vocabulary split over ranks: part[rows,3] = (max, sum exp(x - max), target logit or 0);
 * all-gather -> parts[parts, rows, 3]; finish writes lse and returns the sum of losses. */
void kernel_cross_entropy_part(int64_t rows, int64_t n, const T *logits,
                               const struct kernel_targets *target, float *part);
double kernel_cross_entropy_finish(int64_t rows, int64_t parts, const float *part,
                                   float *lse);
/* dlogits = (exp(logits - lse) - onehot(target)) * scale, 0 in rows that do not count; dlogits may
 * be logits. */
void kernel_cross_entropy_dx(int64_t rows, int64_t n, const T *logits,
                             const struct kernel_targets *target, const float *lse,
                             float scale, T *dlogits);

/* y = x kept with probability 1 - p and scaled by 1/(1-p); the draw for an element depends on
 * (seed, stream, its index in the whole tensor) alone (common/rng.h). y may be x. Backward is
 * the same call on the gradient. */
void kernel_dropout(const struct kernel_box *box, float p, uint64_t seed, uint64_t stream,
                    const T *x, T *y);
/* Initial parameter: y = most * a number from -1 to 1 of (seed, stream, index in the whole tensor). */
void kernel_uniform(const struct kernel_box *box, float most, uint64_t seed,
                    uint64_t stream, T *y);
/* Initial parameter: y = std * normal(seed, stream, index in the whole tensor). */
void kernel_normal(const struct kernel_box *box, float std, uint64_t seed, uint64_t stream,
                   T *y);
