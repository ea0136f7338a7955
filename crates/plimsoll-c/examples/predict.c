// Labels of an image in memory: predict MODEL IMAGE DEPTH HEIGHT WIDTH SPACING LABELS [REFERENCE]
// IMAGE has the voxels of all channels as floats, and nothing else; SPACING is in millimetres, the same along all axes; LABELS is
// written with a byte for each voxel. REFERENCE has labels of the same form, against which the largest label is scored.
#include <stdio.h>
#include <stdlib.h>
#include "plimsoll.h"

static int fail(const PlimsollModel *model) {
    char text[1024];
    plimsoll_error(model, text, sizeof text);
    fprintf(stderr, "error: %s\n", text);
    return 1;
}

int main(int count, char **arguments) {
    if (count != 8 && count != 9) return 2;
    PlimsollOptions options = plimsoll_usual_options();
    options.ram_bytes = 512u << 20;
    PlimsollModel *model;
    PlimsollDescription about;
    if (plimsoll_open(arguments[1], &options, &model) || plimsoll_describe(model, &about)) return fail(model);
    char warnings[1024];
    if (plimsoll_limit_warnings(warnings, sizeof warnings) > 1) fprintf(stderr, "warning: %s\n", warnings);

    PlimsollImage image = {.channel_count = about.channels, .element = PLIMSOLL_F32};
    uint64_t voxels = 1;
    for (int axis = 0; axis < 3; axis++) voxels *= image.shape[axis] = strtoull(arguments[3 + axis], NULL, 10);
    double spacing = atof(arguments[6]), along_axes[3] = {spacing, spacing, spacing};
    plimsoll_affine(along_axes, NULL, NULL, image.affine);
    image.channel_bytes = voxels * sizeof(float);
    char *read = malloc(about.channels * image.channel_bytes);
    const void **channels = malloc(about.channels * sizeof *channels);
    unsigned char *labels = malloc(voxels);
    FILE *file = fopen(arguments[2], "rb");
    if (!read || !channels || !labels || !file || fread(read, image.channel_bytes, about.channels, file) != about.channels)
        return 3;
    for (uint64_t channel = 0; channel < about.channels; channel++) channels[channel] = read + channel * image.channel_bytes;
    image.channels = channels;

    PlimsollPlan plan;
    if (plimsoll_plan(model, image.shape, image.affine, image.element, &plan)) return fail(model);
    printf("%llu windows, %llu bytes\n", (unsigned long long)plan.windows, (unsigned long long)plan.total_bytes);
    PlimsollEstimate estimate;
    if (plimsoll_estimate(model, image.shape, image.affine, image.element, &estimate)) return fail(model);
    printf("at least %llu bytes, about %.1f s\n", (unsigned long long)estimate.least_bytes, estimate.predicted_seconds);
    if (plimsoll_predict(model, &image, labels, PLIMSOLL_U8, voxels, NULL)) return fail(model);
    file = freopen(arguments[7], "wb", file);
    if (!file || fwrite(labels, 1, voxels, file) != voxels || fclose(file)) return 4;
    if (count == 9) {
        unsigned char *reference = malloc(voxels), label = (unsigned char)about.largest_label;
        file = fopen(arguments[8], "rb");
        if (!reference || !file || fread(reference, 1, voxels, file) != voxels) return 5;
        PlimsollLabelMaps maps = {.prediction = labels, .reference = reference, .map_bytes = voxels};
        for (int axis = 0; axis < 3; axis++) maps.shape[axis] = image.shape[axis], maps.spacing[axis] = spacing;
        PlimsollScores scores;
        char text[1024];
        if (plimsoll_evaluate(&maps, NULL, &label, 1, &scores, text, sizeof text)) {
            fprintf(stderr, "error: %s\n", text);
            return 1;
        }
        printf("label %u: Dice %.3f, Hausdorff distance %.2f mm\n", scores.label, scores.dice, scores.hausdorff);
        fclose(file), free(reference);
    }
    plimsoll_free(model);
    free(read), free(channels), free(labels);
}
