// Prediction from C. Made by cbindgen: `PLIMSOLL_BLESS=1 cargo test -p plimsoll-c --test header` writes it anew.

#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Voxels or labels of 8 bits, without sign.
#define PLIMSOLL_U8 1

// Voxels or labels of 16 bits, without sign.
#define PLIMSOLL_U16 2

// Voxels of 16 bits, with sign.
#define PLIMSOLL_I16 3

// Voxels of 32 bits, as floating-point numbers.
#define PLIMSOLL_F32 4

// Windows are looked at as they are.
#define PLIMSOLL_MIRROR_OFF 0

// Windows are looked at mirrored as well.
#define PLIMSOLL_MIRROR_ON 1

// Mirrors windows of nnU-Net's models and not windows of runs, as on the command line.
#define PLIMSOLL_MIRROR_USUAL 2

// Surfaces are not compared.
#define PLIMSOLL_SURFACE_NONE 0

// Surfaces run between voxels and are weighted by their area, as in DeepMind's surface-distance.
#define PLIMSOLL_SURFACE_ELEMENTS 1

// Surfaces are foreground voxels beside the background, as in MONAI.
#define PLIMSOLL_SURFACE_VOXELS 2

// A mask of lines through an object.
#define PLIMSOLL_SCRIBBLE 0

// A mask of a filled contour of an object.
#define PLIMSOLL_LASSO 1

// The result of a call.
typedef enum PlimsollStatus {
  // It did what it says.
  PLIMSOLL_STATUS_OK = 0,
  // An argument cannot be: a null pointer, a length that does not fit, a number that means nothing.
  PLIMSOLL_STATUS_ARGUMENT = 1,
  // The model cannot be opened.
  PLIMSOLL_STATUS_MODEL = 2,
  // The memory limit is too low.
  PLIMSOLL_STATUS_MEMORY = 3,
  // The image cannot be predicted with this model.
  PLIMSOLL_STATUS_IMAGE = 4,
  // It was stopped.
  PLIMSOLL_STATUS_STOPPED = 5,
  // A fault of the library itself. The handle can only be freed.
  PLIMSOLL_STATUS_INTERNAL = 6,
} PlimsollStatus;

// A model that is open, or what is left to say of one that could not be opened.
typedef struct PlimsollModel PlimsollModel;

// A session with a model of nnInteractive, or what is left to say of one that could not be opened.
typedef struct PlimsollSession PlimsollSession;

// The options of a model. `plimsoll_usual_options` fills them.
typedef struct PlimsollOptions {
  // The most memory in bytes that predictions take, the image's copy included; 0 for what the machine leaves.
  uint64_t ram_bytes;
  // Threads that compute, from 1 to 256.
  uint64_t threads;
  // The share of a window from one to the next at most, above 0 and at most 1.
  double step;
  // Mirrors each window along the axes that the model allows: PLIMSOLL_MIRROR_OFF, PLIMSOLL_MIRROR_ON, or PLIMSOLL_MIRROR_USUAL.
  uint32_t mirror;
} PlimsollOptions;

// The description of a model.
typedef struct PlimsollDescription {
  // Channels of its images.
  uint64_t channels;
  // The largest label that it writes: from 256 on, labels need 16 bits.
  uint32_t largest_label;
  // Networks whose logits are averaged.
  uint64_t folds;
  // Voxels of a window along depth, height, width.
  uint64_t window[3];
  // The memory limit in bytes.
  uint64_t ram_bytes;
} PlimsollDescription;

// The memory of a prediction in bytes, and its number of windows.
typedef struct PlimsollPlan {
  // The number of windows over all folds.
  uint64_t windows;
  // Code, heap and stacks.
  uint64_t overhead_bytes;
  // Parameters, features and kernels' scratch.
  uint64_t arena_bytes;
  // Windows on their way in and out.
  uint64_t window_bytes;
  // Logits being summed, and a plane of labels.
  uint64_t logits_bytes;
  // The memory of the preparation before the first window.
  uint64_t preparation_bytes;
  // The memory for decoding the image.
  uint64_t decoding_bytes;
  // The copy of the image.
  uint64_t image_bytes;
  // The rest of the limit, which decoded voxels may use.
  uint64_t cache_bytes;
  // Planes of labels that wait for being handed over, if the limit has room for them.
  uint64_t queue_bytes;
  // All of these, and `spool_bytes`.
  uint64_t total_bytes;
  // The least limit that would do.
  uint64_t minimum_bytes;
  // Labels of all the image, where they are not decided in the order of its planes.
  uint64_t spool_bytes;
} PlimsollPlan;

// An estimate of predicting an image.
typedef struct PlimsollEstimate {
  // The least `ram_bytes` that suffices for the image.
  uint64_t least_bytes;
  // Memory in bytes that the prediction takes below the limit of the handle.
  uint64_t total_bytes;
  // The number of windows over all folds.
  uint64_t windows;
  // Predicted seconds of all forward passes, at nominal rates of processors: no kernel is measured.
  double predicted_seconds;
} PlimsollEstimate;

// An image of the caller. Arrays are in the order depth, height, width: a row of voxels, along the width, lies together.
typedef struct PlimsollImage {
  // For each channel, the address of its first voxel.
  const void *const *channels;
  // The number of channels.
  uint64_t channel_count;
  // The bytes of each channel: voxels times the bytes of one.
  uint64_t channel_bytes;
  // PLIMSOLL_U8, PLIMSOLL_U16, PLIMSOLL_I16 or PLIMSOLL_F32.
  uint32_t element;
  // Voxels along depth, height, width.
  uint64_t shape[3];
  // Rows x, y and z (millimetres towards right, anterior, superior) of four numbers each: what one voxel along depth, height and
  // width adds, and where the first voxel is. `plimsoll_affine` makes it of spacing and direction.
  double affine[12];
} PlimsollImage;

// A box of voxels, in the order depth, height, width.
typedef struct PlimsollBox {
  // The first voxel.
  int64_t start[3];
  // The voxel past the last along each axis.
  int64_t end[3];
} PlimsollBox;

// A mask of the caller, a part of an image: a byte for each voxel, which is marked if it is not 0.
typedef struct PlimsollMask {
  // The address of its first voxel.
  const uint8_t *voxels;
  // The bytes of the mask: its voxels.
  uint64_t voxel_bytes;
  // The voxel of the image at which it begins: depth, height, width.
  uint64_t start[3];
  // Voxels along depth, height, width.
  uint64_t shape[3];
} PlimsollMask;

// The way in which label maps are compared. `plimsoll_usual_comparison` fills it.
typedef struct PlimsollComparison {
  // The most memory in bytes that is taken beside the maps; 0 for what the machine leaves.
  uint64_t ram_bytes;
  // Threads that compute, from 1 to 256.
  uint64_t threads;
  // PLIMSOLL_SURFACE_NONE, PLIMSOLL_SURFACE_ELEMENTS or PLIMSOLL_SURFACE_VOXELS.
  uint32_t surface;
  // Millimetres that surfaces may be apart for the surface Dice, from 0.
  double tolerance;
} PlimsollComparison;

// Two label maps of the caller on the same grid, a byte for each voxel, in the order depth, height, width.
typedef struct PlimsollLabelMaps {
  // The predicted labels.
  const uint8_t *prediction;
  // The reference labels.
  const uint8_t *reference;
  // The bytes of each map: its voxels.
  uint64_t map_bytes;
  // Voxels along depth, height, width.
  uint64_t shape[3];
  // Millimetres between voxels along the same axes.
  double spacing[3];
} PlimsollLabelMaps;

// The scores of one label. An undefined score is NaN: all but counts if neither map has the label, distances if one map lacks it, and
// surface scores with PLIMSOLL_SURFACE_NONE.
typedef struct PlimsollScores {
  // The label.
  uint32_t label;
  // Voxels that have the label in both maps.
  uint64_t true_positives;
  // Voxels that have it in the prediction alone.
  uint64_t false_positives;
  // Voxels that have it in the reference alone.
  uint64_t false_negatives;
  // Dice coefficient.
  double dice;
  // Intersection over union.
  double iou;
  // Sensitivity, or recall.
  double sensitivity;
  // Precision.
  double precision;
  // Volume similarity.
  double volume_similarity;
  // Hausdorff distance in millimetres.
  double hausdorff;
  // 95th percentile of the Hausdorff distance in millimetres.
  double hausdorff_95;
  // Average symmetric surface distance in millimetres.
  double average_distance;
  // Share of both surfaces that is within the tolerance of the other (surface Dice, NSD).
  double surface_dice;
} PlimsollScores;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The program's version, such as `1.2.3`. The text is valid for the life of the process.
const char *plimsoll_version(void);

// The default options, as on the command line: the machine's memory, one thread per core up to 256, windows that overlap by half.
struct PlimsollOptions plimsoll_usual_options(void);

// The affine of an image by its spacing in millimetres along depth, height, width; the unit vectors of depth, height and width as the
// columns of a matrix, row by row, or null for depth towards superior, height towards anterior and width towards right; and the position
// of the first voxel, or null for 0. `affine` has room for twelve numbers.
//
// # Safety
// Pointers are null or point to 3, 9, 3 and 12 numbers.
enum PlimsollStatus plimsoll_affine(const double *spacing,
                                    const double *direction,
                                    const double *origin,
                                    double *affine);

// Opens a model: the folder of a run, of one fold of it, of a configuration that nnU-Net trained or of a MONAI bundle, a `.plimsoll` file,
// or a `model.toml` that describes a model of MONAI. `options` may be null for the usual ones. Unless `model` or `path` is null, `*model` is
// a handle then, whatever comes of it, which says what is wrong and must be freed; if `path` is null, `*model` is null.
//
// # Safety
// `path` is null or a text that ends in zero; `options` and `model` are null or point to what they say.
enum PlimsollStatus plimsoll_open(const char *path,
                                  const struct PlimsollOptions *options,
                                  struct PlimsollModel **model);

// Says what a model is.
//
// # Safety
// `model` is null or a handle that is not freed; `description` is null or points to one.
enum PlimsollStatus plimsoll_describe(const struct PlimsollModel *model,
                                      struct PlimsollDescription *description);

// Plans an image of a shape (depth, height, width) and an affine as `PlimsollImage` has it, as if no part of it were empty. Nothing is
// taken for it; what an earlier prediction has kept is given back, if it leaves no room for this image.
//
// # Safety
// `model` is null or a handle that is not freed; `shape` and `affine` are null or point to 3 and 12 numbers; `plan` is null or points to
// one.
enum PlimsollStatus plimsoll_plan(const struct PlimsollModel *model,
                                  const uint64_t *shape,
                                  const double *affine,
                                  uint32_t element,
                                  struct PlimsollPlan *plan);

// Estimates the least memory and the time of predicting an image of a shape and an affine, as `plimsoll_plan` plans it. If the limit of the
// handle is too low for the image, the status is PLIMSOLL_STATUS_MEMORY, and the text of the error proposes another one.
//
// # Safety
// `model` is null or a handle that is not freed; `shape` and `affine` are null or point to 3 and 12 numbers; `estimate` is null or points
// to one.
enum PlimsollStatus plimsoll_estimate(const struct PlimsollModel *model,
                                      const uint64_t *shape,
                                      const double *affine,
                                      uint32_t element,
                                      struct PlimsollEstimate *estimate);

// Predicts the labels of an image: one for each voxel, in the order of the image's. `element` is PLIMSOLL_U8 or PLIMSOLL_U16, and
// `label_bytes` the bytes of the buffer, voxels times 1 or 2. They are those that `plimsoll predict` writes for the same image in a file.
// `plan` may be null. After a failure what is in `labels` means nothing. Image and labels must not overlap.
//
// # Safety
// `model` is null or a handle that is not freed; `image` and what it points to can be read for as many bytes as it says, `labels` can be
// written for `label_bytes`, and `plan` is null or points to one; nothing else changes them until the call returns.
enum PlimsollStatus plimsoll_predict(const struct PlimsollModel *model,
                                     const struct PlimsollImage *image,
                                     void *labels,
                                     uint32_t element,
                                     uint64_t label_bytes,
                                     struct PlimsollPlan *plan);

// Ends a prediction that another thread waits for, which then returns PLIMSOLL_STATUS_STOPPED. Where none is going on, the next one ends so
// as soon as it begins.
//
// # Safety
// `model` is null or a handle that is not freed.
void plimsoll_stop(const struct PlimsollModel *model);

// Copies what the last call that failed on this handle has to say, in UTF-8 with a zero behind it: one line, and often a second one that
// begins with `hint: `. Of a text that is longer than `size` bytes, the beginning. Returns how many bytes all of it takes, the zero
// included.
//
// # Safety
// `model` is null or a handle that is not freed; `text` is null or can be written for `size` bytes.
uint64_t plimsoll_error(const struct PlimsollModel *model,
                        char *text,
                        uint64_t size);

// Copies the warnings about the memory limit of this process, in UTF-8 with a zero behind them: one line for each file of the system that
// exists but cannot be read, so that a memory limit set there is not enforced. The text is empty if every file was read. Of a text that is
// longer than `size` bytes, the beginning. Returns how many bytes all of it takes, the zero included.
//
// # Safety
// `text` is null or can be written for `size` bytes.
uint64_t plimsoll_limit_warnings(char *text,
                                 uint64_t size);

// Frees a handle and all memory that it holds. Null is allowed.
//
// # Safety
// `model` is null or a handle that `plimsoll_open` gave and that was not freed; no other call uses it.
void plimsoll_free(struct PlimsollModel *model);

// Opens a session with the folder of a model of nnInteractive. Of `options`, which may be null for the usual ones, `step` and `mirror` have no effect.
// Unless `session` or `path` is null, `*session` is a handle then, whatever comes of it, which says what is wrong and must be freed; if
// `path` is null, `*session` is null.
//
// # Safety
// `path` is null or a text that ends in zero; `options` and `session` are null or point to what they say.
enum PlimsollStatus plimsoll_session_open(const char *path,
                                          const struct PlimsollOptions *options,
                                          struct PlimsollSession **session);

// Sets an image of one channel, in the order depth, height, width, and removes the earlier one with its prompts. Intensities are as they are stored;
// they are copied. `element` is PLIMSOLL_U8, PLIMSOLL_U16, PLIMSOLL_I16 or PLIMSOLL_F32.
//
// # Safety
// `session` is null or a handle that is not freed; `voxels` is null or can be read for `voxel_bytes`, and `shape` is null or points to 3
// numbers; nothing changes them until the call returns.
enum PlimsollStatus plimsoll_session_set_image(const struct PlimsollSession *session,
                                               const void *voxels,
                                               uint64_t voxel_bytes,
                                               uint32_t element,
                                               const uint64_t *shape);

// Adds a point, a voxel (depth, height, width) of the object or, if `include` is 0, of its surroundings.
//
// # Safety
// `session` is null or a handle that is not freed; `at` is null or points to 3 numbers.
enum PlimsollStatus plimsoll_session_add_point(const struct PlimsollSession *session,
                                               const int64_t *at,
                                               uint32_t include);

// Adds a box around the object or, if `include` is 0, around what does not belong to it. Most models need boxes of one voxel along one axis.
//
// # Safety
// `session` is null or a handle that is not freed; `within` is null or points to a box.
enum PlimsollStatus plimsoll_session_add_box(const struct PlimsollSession *session,
                                             const struct PlimsollBox *within,
                                             uint32_t include);

// Adds a scribble or a lasso, PLIMSOLL_SCRIBBLE or PLIMSOLL_LASSO, of the object or, if `include` is 0, of what does not belong to it.
//
// # Safety
// `session` is null or a handle that is not freed; `mask` is null or points to a mask whose voxels can be read for as many bytes as it
// says; nothing changes them until the call returns.
enum PlimsollStatus plimsoll_session_add_mask(const struct PlimsollSession *session,
                                              uint32_t kind,
                                              const struct PlimsollMask *mask,
                                              uint32_t include);

// Begins with a segmentation of the whole image, a byte for each voxel, and removes all prompts. The next prediction refines all of it, unless a
// prompt is added before.
//
// # Safety
// `session` is null or a handle that is not freed; `voxels` is null or can be read for `voxel_bytes`; nothing changes them until the call
// returns.
enum PlimsollStatus plimsoll_session_add_initial_segmentation(const struct PlimsollSession *session,
                                                              const uint8_t *voxels,
                                                              uint64_t voxel_bytes);

// Predicts the object with all prompts, around the newest one, and writes the box in which the segmentation may have changed: an empty one if no prompt was
// added since the last prediction. `changed` may be null.
//
// # Safety
// `session` is null or a handle that is not freed; `changed` is null or points to a box.
enum PlimsollStatus plimsoll_session_predict(const struct PlimsollSession *session,
                                             struct PlimsollBox *changed);

// Copies the segmentation, a byte for each voxel: 1 for the object, else 0.
//
// # Safety
// `session` is null or a handle that is not freed; `labels` is null or can be written for `label_bytes`, which nothing else uses until the
// call returns.
enum PlimsollStatus plimsoll_session_segmentation(const struct PlimsollSession *session,
                                                  uint8_t *labels,
                                                  uint64_t label_bytes);

// Returns to the state before the last prompt, predictions since included. Without one, or if it was undone already, nothing changes.
//
// # Safety
// `session` is null or a handle that is not freed.
enum PlimsollStatus plimsoll_session_undo(const struct PlimsollSession *session);

// Removes all prompts and the segmentation, for another object of the same image.
//
// # Safety
// `session` is null or a handle that is not freed.
enum PlimsollStatus plimsoll_session_reset(const struct PlimsollSession *session);

// Ends a prediction that another thread waits for, which then returns PLIMSOLL_STATUS_STOPPED and leaves the segmentation as it was. Where none
// is going on, the next one ends so as soon as it begins.
//
// # Safety
// `session` is null or a handle that is not freed.
void plimsoll_session_stop(const struct PlimsollSession *session);

// Copies the error of the last call that failed on this session, as `plimsoll_error` does it for a model.
//
// # Safety
// `session` is null or a handle that is not freed; `text` is null or can be written for `size` bytes.
uint64_t plimsoll_session_error(const struct PlimsollSession *session, char *text, uint64_t size);

// Frees a session and all memory that it holds. Null is allowed.
//
// # Safety
// `session` is null or a handle that `plimsoll_session_open` gave and that was not freed; no other call uses it.
void plimsoll_session_free(struct PlimsollSession *session);

// The usual comparison: the machine's memory, as many threads as it has processors up to 256, surfaces between voxels, and a tolerance of
// 1 mm.
struct PlimsollComparison plimsoll_usual_comparison(void);

// Scores labels of a prediction against a reference: `scores` is filled with one element for each of `label_count` labels, in their order.
// `comparison` may be null for the usual one. The scores equal `plimsoll evaluate`'s for the same maps in files. After a failure
// `scores` has no meaning, and `error`, which may be null, has a text of at most `error_bytes` bytes that ends in a zero: one line, and often
// a second one that begins with `hint: `.
//
// # Safety
// Pointers are null or point to the values that their types and counts state: maps can be read for `map_bytes` each, `labels` for
// `label_count` bytes, `scores` can be written for `label_count` elements and `error` for `error_bytes`; nothing else changes them until
// the call returns.
enum PlimsollStatus plimsoll_evaluate(const struct PlimsollLabelMaps *maps,
                                      const struct PlimsollComparison *comparison,
                                      const uint8_t *labels,
                                      uint64_t label_count,
                                      struct PlimsollScores *scores,
                                      char *error,
                                      uint64_t error_bytes);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLIMSOLL_H */
