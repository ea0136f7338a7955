//! Losses that are means of a term over voxels that count and foreground classes: of distances, or of how far boundaries are apart.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::{
    BoundaryL1, BoundaryL1Grad, DistanceLoss, DistanceLossGrad, DistanceTerm, SurfaceForm,
};
use plimsoll_plan::Unsupported;

use super::loss::ignored;
use crate::lower::{BLOCK, Context, Lower, Stretch, Work, address_or_null, stretches};

/// Elements whose terms a block sums, `TERMS_OF_BLOCK` of the kernels.
const TERMS_OF_BLOCK: usize = 8 * BLOCK;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ShapeLossParameters {
    probabilities: u64,
    labels: u64,
    target: u64,
    predicted: u64,
    factor: u64,
    parts: u64,
    codes: u64,
    gradient: u64,
    extent: [u32; 3],
    classes: u32,
    ignore: u32,
    count: u32,
    term: u32,
    number: f32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ShapeLossMeanParameters {
    parts: u64,
    known: u64,
    upstream: u64,
    loss: u64,
    table: u64,
    parts_count: u32,
    foreground: u32,
    is_log: u32,
    unused: u32,
}

/// A loss that is the mean of a term over voxels that count and foreground classes.
struct ShapeLoss {
    /// The parameters, with only the addresses of operands set.
    parameters: ShapeLossParameters,
    is_log: bool,
    /// The memory of probabilities, labels and distances.
    reads: Vec<Stretch>,
}

impl ShapeLoss {
    /// Returns the loss by a term of distances, or by the difference of boundaries if there is no term.
    fn new(
        cx: &Context<'_>,
        term: Option<DistanceTerm>,
        ignore: Option<u8>,
    ) -> Result<ShapeLoss, Unsupported> {
        let maps = term.map_or(0, |term| 1 + usize::from(term.uses_prediction()));
        let operands = &cx.inputs[..2 + maps];
        let shape = &operands[0].info.shape;
        let (term, number) = match term {
            None => (0, 0.0),
            Some(DistanceTerm::Boundary) => (1, 0.0),
            Some(DistanceTerm::Hausdorff { alpha, .. }) => (2, alpha),
            Some(DistanceTerm::Surface { tolerance, form: SurfaceForm::Symmetric }) => (3, tolerance),
            Some(DistanceTerm::Surface { tolerance, form: SurfaceForm::AsPublished }) => (4, tolerance),
        };
        // The number of logits is below what can be indexed as well.
        cx.count(&[shape.batch(), shape.channels() + 1, shape.voxels()])?;
        Ok(ShapeLoss {
            parameters: ShapeLossParameters {
                probabilities: operands[0].address(),
                labels: operands[1].address(),
                target: address_or_null(operands.get(2)),
                predicted: address_or_null(operands.get(3)),
                extent: cx.axes(shape.spatial())?,
                classes: cx.count(&[shape.channels() + 1])?,
                ignore: ignored(ignore),
                count: cx.elements(&operands[0])?,
                term,
                number,
                ..ShapeLossParameters::zeroed()
            },
            is_log: false,
            reads: stretches(operands),
        })
    }

    fn for_distances(cx: &Context<'_>, loss: &DistanceLoss) -> Result<ShapeLoss, Unsupported> {
        let is_log = matches!(loss.term, DistanceTerm::Hausdorff { log: true, .. });
        Ok(ShapeLoss { is_log, ..ShapeLoss::new(cx, Some(loss.term), loss.ignore)? })
    }

    fn mean(&self) -> ShapeLossMeanParameters {
        ShapeLossMeanParameters {
            foreground: self.parameters.classes - 1,
            is_log: self.is_log.into(),
            ..ShapeLossMeanParameters::zeroed()
        }
    }

    /// The loss, and the sum and number that it is made of.
    fn loss(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (loss, table) = (cx.output(0), cx.output(1));
        let parts = (self.parameters.count as usize).div_ceil(TERMS_OF_BLOCK);
        let mut work = Work::new(cx);
        let scratch = work.take::<f64>(cx.count(&[2, parts])? as usize)?;
        let parts = cx.count(&[parts])?;
        let parameters = ShapeLossParameters { parts: scratch.address, ..self.parameters };
        work.blocks("shape_loss_parts", [parts, 1], &parameters, &self.reads, &[scratch])?;
        let parameters = ShapeLossMeanParameters {
            parts: scratch.address,
            loss: loss.address(),
            table: table.address(),
            parts_count: parts,
            ..self.mean()
        };
        work.blocks("shape_loss", [1, 1], &parameters, &[scratch], &stretches(&cx.outputs))?;
        Ok(work)
    }

    /// Takes scratch for what the derivatives of all terms are multiplied with, and launches what computes it. The last two operands are
    /// the sum and number that the loss has found, and the gradient of the loss.
    fn factor(&self, cx: &Context<'_>, work: &mut Work) -> Result<Stretch, Unsupported> {
        let [known, upstream] = [2, 1].map(|from_end| cx.input(cx.inputs.len() - from_end));
        let factor = work.take::<f32>(1)?;
        let parameters = ShapeLossMeanParameters {
            known: known.address(),
            upstream: upstream.address(),
            loss: factor.address,
            ..self.mean()
        };
        work.blocks("shape_loss_factor", [1, 1], &parameters, &[known.at, upstream.at], &[factor])?;
        Ok(factor)
    }
}

impl Lower for BoundaryL1 {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        ShapeLoss::new(cx, None, self.ignore)?.loss(cx)
    }
}

impl Lower for DistanceLoss {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        ShapeLoss::for_distances(cx, self)?.loss(cx)
    }
}

impl Lower for DistanceLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let of = ShapeLoss::for_distances(cx, &self.loss)?;
        let mut work = Work::new(cx);
        let factor = of.factor(cx, &mut work)?;
        let gradient = cx.output(0);
        let parameters =
            ShapeLossParameters { factor: factor.address, gradient: gradient.address(), ..of.parameters };
        let reads = [&of.reads[..], &[factor]].concat();
        work.each("distance_loss_grad", parameters.count, &parameters, &reads, &[gradient.at]);
        // A thread reads the element that it writes, and no other, of probabilities and distances.
        Ok(work.in_place(&[(0, 0), (0, 2)]))
    }
}

impl Lower for BoundaryL1Grad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let of = ShapeLoss::new(cx, None, self.ignore)?;
        let mut work = Work::new(cx);
        let factor = of.factor(cx, &mut work)?;
        let codes = work.take::<u8>(of.parameters.count as usize)?;
        let gradient = cx.output(0);
        let parameters = ShapeLossParameters {
            factor: factor.address,
            codes: codes.address,
            gradient: gradient.address(),
            ..of.parameters
        };
        work.each("boundary_codes", parameters.count, &parameters, &of.reads, &[codes]);
        let reads = [&of.reads[..], &[factor, codes]].concat();
        work.each("boundary_grad", parameters.count, &parameters, &reads, &[gradient.at]);
        Ok(work)
    }
}
