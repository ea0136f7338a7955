// Labels of an image in memory: predict MODEL IMAGE DEPTH HEIGHT WIDTH SPACING LABELS
// IMAGE has the voxels of all channels as floats, and nothing else; SPACING is in millimetres, the same along all axes; LABELS is
// written with a byte for each voxel.
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
    if (count != 8) return 2;
    PlimsollOptions options = plimsoll_usual_options();
    options.ram_bytes = 512u << 20;
    PlimsollModel *model;
    PlimsollDescription about;
    if (plimsoll_open(arguments[1], &options, &model) || plimsoll_describe(model, &about)) return fail(model);

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
    if (plimsoll_predict(model, &image, labels, PLIMSOLL_U8, voxels, NULL)) return fail(model);
    file = freopen(arguments[7], "wb", file);
    if (!file || fwrite(labels, 1, voxels, file) != voxels || fclose(file)) return 4;
    plimsoll_free(model);
    free(read), free(channels), free(labels);
}
